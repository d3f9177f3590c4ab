"""The requests that wait for a version to be loaded on demand: bounded, each for so long at most.

Owned by `server.fleet.residency.on_demand`; on the loop's thread.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Protocol, cast

from schedulers.counters import count_failure
from schedulers.errors import DeadlineExceeded
from schedulers.policy.queue import Ticket
from schedulers.request import InferRequest
from server.errors import NotReady
from server.served_version import ServedVersion, not_ready_text


class LoadTicket(Ticket):
    """Of somebody who waits for the load alone."""

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(cast(InferRequest, None))


class _OnDemandLoad:
    """The `ReplyCarrier` of who waits for a load: it is worked on, and the wait has a limit."""

    def taken(self) -> None:
        """There is no response yet."""

    def cancel(self) -> None:
        """Who has gone is dropped when the next one comes."""

    def executing(self) -> bool:
        return True


_LOAD = _OnDemandLoad()


class WaitingLimits(Protocol):
    """How many may wait for one version, for how long in seconds, and what clients may see of a
    reason."""

    most_waiting: int
    timeout_s: float
    shown: Callable[[str], str]


class WaitingRequests:
    """Of one version, in the order in which they came; counts what it refuses.

    `shortage`: why the load has not begun yet, "" where memory does not lack.
    """

    def __init__(self, served: ServedVersion, limits: WaitingLimits) -> None:
        self._served, self._limits = served, limits
        self._tickets: deque[Ticket] = deque()
        self.shortage = ""

    def __len__(self) -> int:
        return len(self._tickets)

    def holds(self, key: int | str) -> bool:
        """Whether a request of this sequence is among them."""
        return any(_sequence_of(one) == key for one in self._tickets)

    def add(self, ticket: Ticket) -> None:
        """Bounded by `excess`, which is to be asked before."""
        self._tickets.append(ticket)
        ticket.source = _LOAD
        limit_s = wait_s = self._limits.timeout_s
        if not isinstance(ticket, LoadTicket) and ticket.request.deadline_ns:
            wait_s = min(wait_s, (ticket.request.deadline_ns - time.monotonic_ns()) / 1e9)
        own = wait_s < limit_s
        loop = asyncio.get_running_loop()
        timer = loop.call_later(max(0.0, wait_s), self._expire, ticket, own)
        ticket.watch(lambda _: timer.cancel())

    def pop(self) -> Ticket:
        return self._tickets.popleft()

    def excess(self) -> str:
        """Why no more may wait, "" where one may."""
        self.drop_ended()
        most = self._limits.most_waiting
        if len(self._tickets) < most:
            return ""
        return (
            f"version {self._served.version.number} is loading on demand, and "
            f"{len(self._tickets)} requests wait for it, as many as "
            f"--on-demand-max-waiting={most} allows"
        )

    def drop_ended(self) -> None:
        """Those whose clients have gone."""
        if any(one.ended for one in self._tickets):
            self._tickets = deque(one for one in self._tickets if not one.ended)

    def fail(self, error: Exception) -> None:
        """All of them."""
        waiting, self._tickets = self._tickets, deque()
        for ticket in waiting:
            self.fail_one(ticket, error)

    def count(self, error: Exception, taken_ns: int = 0) -> None:
        """One request that the version did not take, or could not answer."""
        counters = self._served.counters
        if isinstance(error, NotReady):
            counters.failure["REJECTED"] += 1
            counters.failure_ns += taken_ns
        else:
            count_failure(counters, error, taken_ns)

    def _expire(self, ticket: Ticket, own: bool) -> None:
        """`own`: it is the client's deadline that has passed."""
        if ticket.ended or ticket not in self._tickets:
            return
        self._tickets.remove(ticket)
        name, number = self._served.version.name, self._served.version.number
        error: Exception
        if own:
            error = DeadlineExceeded(
                f"the deadline passed while model '{name}' version {number} was loading on demand"
            )
        else:
            lacks = f": {self._limits.shown(self.shortage)}" if self.shortage else ""
            error = NotReady(
                not_ready_text(name, number),
                f"version {number} is loading on demand, and has not been loaded within "
                f"--on-demand-timeout-secs={self._limits.timeout_s:g}{lacks}",
            )
        self.fail_one(ticket, error)

    def fail_one(self, ticket: Ticket, error: Exception) -> None:
        if ticket.ended:
            return
        mine = not isinstance(ticket, LoadTicket)
        self.count(error, time.monotonic_ns() - ticket.request.arrived_ns if mine else 0)
        ticket.fail(error)


def _sequence_of(ticket: Ticket) -> int | str | None:
    if isinstance(ticket, LoadTicket) or ticket.request.sequence is None:
        return None
    return ticket.request.sequence.key

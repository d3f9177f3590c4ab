"""Core tokens: running work never exceeds the cores, whatever is loaded. Pure policy.

Schedulers come here from `schedulers.batching` before a batch starts and when it has ended.
"""

from typing import NewType, Protocol

Lease = NewType("Lease", int)

PATIENCE_NS = 1_000_000_000
"""An execution that holds its cores longer than this no longer keeps others from starting."""

BRIEF_NS = 1_000_000
"""An execution expected to be shorter than this need not wait for longer ones to end."""


class Waiter(Protocol):
    """Who waits for tokens; compared by identity."""

    def wake(self) -> None:
        """Tokens may be free: try `take` again soon."""


class CoreTokens:
    """`total` tokens, given first come, first served between the schedulers that wait.

    One that hangs must not stop the others: a lease older than `PATIENCE_NS` no longer counts
    while others wait, so every wait here has an end. Nor must a 50 µs model wait 50 ms behind an
    image model: brief executions that find no token have `total` passes of their own, which
    exceeds the cores by less than a millisecond at a time.
    """

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self._leases: dict[Lease, tuple[int, int]] = {}
        self._waiting: dict[Waiter, None] = {}
        self._passes: set[Lease] = set()
        self._next = 0

    def take(
        self, who: Waiter, cores: int, now_ns: int, expected_ns: int = BRIEF_NS
    ) -> Lease | None:
        """Tokens for one execution, or None; then `who` is in the queue and is named by `next`.

        `expected_ns`: how long the execution will take, as far as is known. One wider than the
        machine takes the whole machine; one of 0 cores never waits.
        """
        if not cores:
            return Lease(0)
        cores = min(cores, self.total)
        first = next(iter(self._waiting), who)
        if first is who:
            if cores > self.free:
                self._reclaim(now_ns)
            if cores <= self.free:
                self._waiting.pop(who, None)
                return self._lease(cores, now_ns)
        if expected_ns < BRIEF_NS and len(self._passes) < self.total:
            return self._pass(who)
        self._waiting[who] = None
        return None

    def give(self, lease: Lease) -> None:
        """The execution has ended; the caller wakes `next`."""
        cores, _ = self._leases.pop(lease, (0, 0))
        self.free += cores
        self._passes.discard(lease)

    def next(self) -> Waiter | None:
        """Who waits longest; it stays first in line until it takes or leaves."""
        return next(iter(self._waiting), None)

    def leave(self, who: Waiter) -> None:
        """`who` no longer waits."""
        self._waiting.pop(who, None)

    def overdue_ns(self) -> int | None:
        """When the oldest lease runs out of patience; None without leases."""
        oldest = next(iter(self._leases.values()), None)
        return None if oldest is None else oldest[1] + PATIENCE_NS

    def _pass(self, who: Waiter) -> Lease:
        self._waiting.pop(who, None)
        self._next += 1
        lease = Lease(self._next)
        self._passes.add(lease)
        return lease

    def _lease(self, cores: int, now_ns: int) -> Lease:
        self.free -= cores
        self._next += 1
        lease = Lease(self._next)
        self._leases[lease] = (cores, now_ns)
        return lease

    def _reclaim(self, now_ns: int) -> None:
        overdue = [
            lease
            for lease, (_, since_ns) in self._leases.items()
            if now_ns - since_ns >= PATIENCE_NS
        ]
        for lease in overdue:
            self.give(lease)

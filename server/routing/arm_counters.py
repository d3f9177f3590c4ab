"""What became of one arm's requests: counters that only grow.

The data plane hands every routed Reply in; it is counted when it ends.
"""

from time import monotonic_ns
from typing import TYPE_CHECKING

from control.rollouts.arms import ArmTotals, OutcomeCounts
from control.statistics.histogram import Histogram
from schedulers.errors import Cancelled, QueueFull

if TYPE_CHECKING:
    from schedulers.reply import Reply
    from schedulers.request import InferResponse

LOOKED_AT = 16
"""The outputs of one answer in so many are looked at."""

MOST_TAKEN, FEW_TAKEN = 1_024, 64
"""Latencies that wait to be sorted into buckets, which takes 0.1 ms for so many; and how many are
sorted faster one by one."""


class ArmCounters:
    """One arm's outcomes since the process began. The loop's thread adds. `deaths` and
    `resident_bytes`, of its workers, are only looked at while a rollout moves the route.

    An answer costs its arm an entry in each of two lists; what is asked for now and then is worked
    out then.
    """

    __slots__ = (
        "_compute",
        "_computed_ns",
        "_last_report",
        "_latency",
        "_left",
        "_look_next",
        "_taken_ns",
        "deaths",
        "empty",
        "entered",
        "errors",
        "not_a_number",
        "resident_bytes",
    )

    def __init__(self) -> None:
        self.entered = 0
        """Requests that were accepted."""
        self.errors = self.not_a_number = self.empty = 0
        self.deaths = self.resident_bytes = 0
        self._left = 0
        self._taken_ns: list[int] = []
        self._look_next = LOOKED_AT  # when so many are taken
        self._latency = Histogram()
        self._computed_ns: list[int] = []
        self._compute = Histogram()
        self._last_report = (0, 0, 0)

    @property
    def latency(self) -> Histogram:
        """Of what was answered."""
        self._sort()
        return self._latency

    @property
    def requests(self) -> int:
        """What was answered or failed."""
        return self._answered + self.errors

    @property
    def in_flight(self) -> int:
        """What was accepted and has not ended."""
        return self.entered - self._left - self._answered

    @property
    def changed(self) -> bool:
        """Whether anything has ended or died since `tell`."""
        return self._last_report != self._marks

    def tell(self) -> None:
        """Everything so far is told."""
        self._last_report = self._marks

    def refused(self) -> None:
        """It was not even accepted: the queue is full, or the version is not ready."""
        self.errors += 1

    def follow(self, reply: "Reply", arrived_ns: int) -> None:
        """Count how `reply` ends. `arrived_ns` is on `time.monotonic_ns`."""
        self.entered += 1
        reply.arrived_ns = arrived_ns
        if reply.ended or reply.watcher is not None:
            reply.watch(self.ended)
        else:  # the usual, without a call
            reply.watcher = self.ended

    def ended(self, reply: "Reply") -> None:
        """One that has `entered`. What the client got wrong or cancelled does not count."""
        error = reply.error
        if error is None:
            now_ns, taken_ns = monotonic_ns(), self._taken_ns
            taken_ns.append(now_ns - reply.arrived_ns)
            if reply.started_ns:  # not out of the cache
                self._computed_ns.append(now_ns - reply.started_ns)
            if len(taken_ns) == self._look_next:
                self._look(reply.unread)
        else:
            self._failed(error)

    def left(self) -> None:
        """One that has `entered` ended in a way that does not count."""
        self._left += 1

    def totals(self) -> ArmTotals:
        """As of now: nobody adds to the counts and the latencies in it any more."""
        counts = OutcomeCounts(self.requests, self.errors, self.not_a_number, self.empty)
        nothing = Histogram()
        return ArmTotals(counts, self.latency.merged(nothing), self._compute.merged(nothing))

    @property
    def _answered(self) -> int:
        return self._latency.n + len(self._taken_ns)

    @property
    def _marks(self) -> tuple[int, int, int]:
        return self._left + self._answered, self.errors, self.deaths

    def _failed(self, error: Exception) -> None:
        self._left += 1
        if not isinstance(error, Cancelled) and is_server_fault(error):
            self.errors += 1

    def _look(self, response: "InferResponse | None") -> None:
        """Count what no answer should look like; and let no more wait than may."""
        # Here, for the control process reads tables of routes too, and does without numpy.
        from server.routing.outputs import empty, not_a_number

        self._look_next += LOOKED_AT
        if response is None:
            pass  # the reader of a stream has it already
        elif empty(response.outputs):
            self.empty += 1
        elif not_a_number(response.outputs):
            self.not_a_number += 1
        if len(self._taken_ns) >= MOST_TAKEN:
            self._sort()

    def _sort(self) -> None:
        taken, self._taken_ns = self._taken_ns, []
        computed, self._computed_ns = self._computed_ns, []
        self._look_next -= len(taken)
        _add(self._latency, taken)
        _add(self._compute, computed)


def _add(histogram: Histogram, durations_ns: list[int]) -> None:
    if len(durations_ns) > FEW_TAKEN:
        histogram.add_many([ns * 1e-9 for ns in durations_ns])
    else:
        for ns in durations_ns:
            histogram.add(ns * 1e-9)


def is_server_fault(error: Exception) -> bool:
    """Whether the client could not have done better."""
    from server.errors import status_of  # as in `ArmCounters._look`

    return isinstance(error, QueueFull) or status_of(error).http >= 500

"""Latency of two networks, measured in turns so that both meet the same machine."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

Run = Callable[[], object]

ROUNDS, WARM_UP = 30, 3
MOST_S = 12.0
LEAST_ROUNDS = 5
MOSTLY = 0.7
"""Share of the process's time that the calling thread has where no other one computes."""


class LatencyPair(NamedTuple):
    """Typical milliseconds of CPU time on one thread, for one batch size."""

    batch: int
    before_ms: float
    after_ms: float
    rounds: int

    @property
    def speedup(self) -> float:
        """How many times as fast the second one is."""
        return self.before_ms / self.after_ms


def measure_in_turns(before: Run, after: Run, batch: int) -> LatencyPair:
    """Run both by turns, up to 30 rounds or 12 seconds and at least 5 rounds.

    A run's time is CPU time: what else the machine does is not counted, as its waits would be in
    wall time.
    """
    for _ in range(WARM_UP):
        before(), after()
    until = time.monotonic() + MOST_S
    times: tuple[list[CpuTime], list[CpuTime]] = ([], [])
    while len(times[0]) < ROUNDS and (time.monotonic() < until or len(times[0]) < LEAST_ROUNDS):
        for run, into in zip((before, after), times, strict=True):
            into.append(_timed(run))
    return LatencyPair(batch, typical_ms(times[0]), typical_ms(times[1]), len(times[0]))


class CpuTime(NamedTuple):
    """Nanoseconds of CPU time of one run: of the thread that called it, and of the process."""

    thread_ns: int
    process_ns: int


def typical_ms(times: Sequence[CpuTime]) -> float:
    """The median of the calling thread's time where it did the work, else the process's mean; at
    least a nanosecond.

    With a limit on its CPU time a process's clock moves with the kernel's ticks alone, some
    milliseconds each, so that a short run has 0; a thread's clock is exact.
    """
    of_thread = sum(one.thread_ns for one in times)
    of_process = sum(one.process_ns for one in times)
    if of_thread >= MOSTLY * of_process:
        found = statistics.median(one.thread_ns for one in times)
    else:
        found = of_process / len(times)
    return max(found, 1.0) / 1e6


def _timed(run: Run) -> CpuTime:
    process, thread = time.process_time_ns(), time.thread_time_ns()
    run()
    return CpuTime(time.thread_time_ns() - thread, time.process_time_ns() - process)

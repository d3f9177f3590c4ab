"""Latency of two networks, measured in turns so that both meet the same machine."""

import statistics
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

Run = Callable[[], object]

ROUNDS, WARM_UP = 30, 3
MOST_S = 12.0
LEAST_ROUNDS = 5


class LatencyPair(NamedTuple):
    """Medians in milliseconds of CPU time on one thread, for one batch size."""

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

    A run's time is the CPU time of this process, in which one thread computes: what else the
    machine does is not counted, as its waits would be in wall time.
    """
    for _ in range(WARM_UP):
        before(), after()
    until = time.monotonic() + MOST_S
    times: tuple[list[float], list[float]] = ([], [])
    while len(times[0]) < ROUNDS and (time.monotonic() < until or len(times[0]) < LEAST_ROUNDS):
        for run, into in zip((before, after), times, strict=True):
            into.append(_cpu_ms(run))
    return LatencyPair(batch, _median(times[0]), _median(times[1]), len(times[0]))


def _cpu_ms(run: Run) -> float:
    start = time.process_time_ns()
    run()
    return (time.process_time_ns() - start) / 1e6


def _median(values: Sequence[float]) -> float:
    return statistics.median(values)

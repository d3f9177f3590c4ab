"""Durations of one kind since somebody last took them, to be merged over time and servers."""

import numpy

from control.statistics.histogram import Histogram

MOST_WAITING, FEW_WAITING = 2_048, 64
"""Durations that wait to be sorted into buckets, which takes 0.15 ms for so many; and how many are
sorted faster one by one."""


class LatencySamples:
    """One thread adds and takes. A duration costs an entry in a list; it is sorted into its bucket
    when it is asked for, or when many wait."""

    __slots__ = ("_histogram", "_waiting_ns")

    def __init__(self) -> None:
        self._waiting_ns: list[int] = []
        self._histogram: Histogram | None = None

    def add(self, duration_ns: int, times: int = 1) -> None:
        waiting_ns = self._waiting_ns
        if times == 1:
            waiting_ns.append(duration_ns)
        else:
            waiting_ns += [duration_ns] * times
        if len(waiting_ns) >= MOST_WAITING:
            self._sort()

    def take(self) -> Histogram | None:
        """All since the last call, None without any; from here on the caller's."""
        if self._waiting_ns:
            self._sort()
        taken, self._histogram = self._histogram, None
        return taken

    def _sort(self) -> None:
        waiting, self._waiting_ns = self._waiting_ns, []
        histogram = self._histogram = self._histogram or Histogram()
        if len(waiting) > FEW_WAITING:
            histogram.add_many(numpy.array(waiting, numpy.float64) * 1e-9)
        else:
            for ns in waiting:
                histogram.add(ns * 1e-9)

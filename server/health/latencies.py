"""Quantiles of packed histograms, and the p95 of a version's last day. Pure."""

from collections import deque
from collections.abc import Iterable, Mapping
from statistics import median

from msgspec import Struct

from control.series.points import Latencies
from control.statistics.histogram import BUCKETS, EDGES

HOUR_S, HOURS = 3600, 24
LEAST_HOURS, LEAST_REQUESTS = 2, 100
"""An hour counts with so many requests, and so many such hours make a day that can be judged by."""


def counts_of(packed: Iterable[Latencies]) -> dict[int, int]:
    """All of them together: counts by bucket."""
    counts: dict[int, int] = {}
    for latencies in packed:
        _add(counts, latencies)
    return counts


def _add(counts: dict[int, int], latencies: Latencies) -> None:
    bucket = -1
    for skipped, count in zip(latencies[::2], latencies[1::2], strict=True):
        bucket += skipped + 1
        counts[bucket] = counts.get(bucket, 0) + count


def quantile_of(counts: Mapping[int, int], q: float) -> float:
    """In seconds, the upper edge of its bucket, 2.2 % too long at most; 0 of nothing."""
    rank = q * sum(counts.values())
    for bucket in sorted(counts):
        rank -= counts[bucket]
        if rank <= 0:
            return EDGES[min(bucket, BUCKETS - 2)]
    return 0.0


class HourLatency(Struct, frozen=True, array_like=True):
    """The p95 of an hour that began `at`, seconds since the epoch."""

    at: int
    p95_s: float


class UsualLatency:
    """One version's: the p95 of each full hour of its last day, and what the present hour has."""

    def __init__(self, hours: Iterable[HourLatency] = ()) -> None:
        self._hours = deque(hours, HOURS)
        self._at = 0
        self._counts: dict[int, int] = {}

    @property
    def hours(self) -> tuple[HourLatency, ...]:
        return tuple(self._hours)

    def add(self, at: int, latency: Latencies) -> None:
        """Of a window that began `at`."""
        hour = at - at % HOUR_S
        if hour != self._at:
            if sum(self._counts.values()) >= LEAST_REQUESTS:
                self._hours.append(HourLatency(self._at, quantile_of(self._counts, 0.95)))
            self._at, self._counts = hour, {}
        _add(self._counts, latency)

    def usual_s(self, now: float) -> float:
        """The median of the hours of the last day, which a bad one of them does not move; 0 while
        there are too few."""
        day = [one.p95_s for one in self._hours if one.at > now - HOURS * HOUR_S - HOUR_S]
        return median(day) if len(day) >= LEAST_HOURS else 0.0

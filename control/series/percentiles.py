"""Percentiles of latencies, kept: a chart is drawn again with one point more."""

import math
from collections import OrderedDict
from threading import Lock

from control.series.points import Latencies, buckets_of
from control.statistics.histogram import quantile_of_buckets

LIMIT_BYTES = 8 * 2**20
"""Of memory, as `_size_of` works it out: 14,000 histograms of ten buckets, which is what a model's
minute has, or 130 of all buckets."""

_ENTRY_BYTES, _NUMBER_BYTES = 320, 36

Percentiles = tuple[float | None, float | None, float | None]
"""p50, p95 and p99 in milliseconds, of four digits."""


class PercentileCache:
    """From any thread; what was not asked for longest goes first."""

    def __init__(self, limit_bytes: int = LIMIT_BYTES) -> None:
        self._limit_bytes = limit_bytes
        self._known: OrderedDict[Latencies, Percentiles] = OrderedDict()
        self._lock = Lock()
        self.size_bytes = 0

    def of(self, latencies: Latencies) -> Percentiles:
        """Raises ValueError for what `pack_latencies` cannot have made."""
        with self._lock:
            found = self._known.get(latencies)
            if found is not None:
                self._known.move_to_end(latencies)
                return found
        found = _percentiles(latencies)
        with self._lock:
            self._keep(latencies, found)
        return found

    def _keep(self, latencies: Latencies, found: Percentiles) -> None:
        if latencies in self._known:
            return
        self._known[latencies] = found
        self.size_bytes += _size_of(latencies)
        while self.size_bytes > self._limit_bytes:
            gone, _ = self._known.popitem(last=False)
            self.size_bytes -= _size_of(gone)


def _percentiles(latencies: Latencies) -> Percentiles:
    buckets = buckets_of(latencies)
    p50, p95, p99 = (rounded(quantile_of_buckets(buckets, q) * 1e3) for q in (0.5, 0.95, 0.99))
    return p50, p95, p99


def _size_of(latencies: Latencies) -> int:
    return _ENTRY_BYTES + _NUMBER_BYTES * len(latencies)


def rounded(value: float) -> float | None:
    """To four digits, which no chart shows more of; None for what is no number."""
    return None if math.isnan(value) else float(f"{value:.4g}")

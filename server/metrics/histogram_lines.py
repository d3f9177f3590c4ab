"""A histogram as Prometheus' text format writes it."""

from collections.abc import Iterator
from itertools import accumulate

from schedulers.counters import BucketCounts


def histogram_lines(
    name: str, label: str, histogram: BucketCounts, per_s: int = 1
) -> Iterator[str]:
    """One version's series, in units of which a second has `per_s`."""
    total = 0
    bounds = (*(f"{bound_ns * per_s / 1e9:.12g}" for bound_ns in histogram.bounds_ns), "+Inf")
    for bound, total in zip(bounds, accumulate(histogram.counts), strict=True):
        yield f'{name}_bucket{{{label},le="{bound}"}} {total}'
    yield f"{name}_sum{{{label}}} {histogram.sum_ns * per_s / 1e9}"
    yield f"{name}_count{{{label}}} {total}"

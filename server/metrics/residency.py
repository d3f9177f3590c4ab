"""Metrics of versions that are loaded on demand: which are loaded, who waits, who was evicted."""

from collections.abc import Callable, Iterator
from itertools import accumulate

from server.metrics.metric_family import MetricFamily, escaped, head
from server.served_version import ResidencyRow, ResidencyState

_PER_VERSION: tuple[tuple[MetricFamily, Callable[[ResidencyRow], int]], ...] = (
    (
        MetricFamily(
            "modelyard_resident", "gauge", "1 while a version that loads on demand is loaded"
        ),
        lambda row: int(row.resident),
    ),
    (
        MetricFamily("modelyard_on_demand_waiting", "gauge", "Requests that wait for the load"),
        lambda row: row.waiting,
    ),
    (
        MetricFamily("modelyard_evictions", "counter", "Times the version made room for another"),
        lambda row: row.evictions,
    ),
)
_COLD_STARTS = MetricFamily(
    "modelyard_cold_start_seconds",
    "histogram",
    "From the first request to a version until it was loaded on demand",
)
OF_RESIDENCY: tuple[MetricFamily, ...] = (*(one for one, _ in _PER_VERSION), _COLD_STARTS)


def of_residency(residency: ResidencyState) -> Iterator[str]:
    """The lines of these metrics."""
    rows = residency.rows()
    for metric, of_row in _PER_VERSION:
        yield from head(metric)
        for row in rows:
            label = f'model="{escaped(row.name)}",version="{row.version}"'
            yield f"{metric.name}{{{label}}} {of_row(row)}"
    yield from head(_COLD_STARTS)
    histogram, name = residency.cold_starts, _COLD_STARTS.name
    bounds = (*(f"{bound_ns / 1e9:.12g}" for bound_ns in histogram.bounds_ns), "+Inf")
    total = 0
    for bound, total in zip(bounds, accumulate(histogram.counts), strict=True):
        yield f'{name}_bucket{{le="{bound}"}} {total}'
    yield f"{name}_sum {histogram.sum_ns / 1e9}"
    yield f"{name}_count {total}"

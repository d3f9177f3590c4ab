"""Metrics of the memory ledger: each device's budget, and what each version was granted of it."""

from collections.abc import Iterator, Sequence

from server.metrics.metric_family import MetricFamily, escaped, head
from server.served_version import MemoryRow

_BUDGET = MetricFamily(
    "modelyard_memory_budget_bytes", "gauge", "Memory of a device that models may take"
)
_GRANTED = MetricFamily(
    "modelyard_memory_granted_bytes", "gauge", "Memory of a device granted to a version"
)
OF_MEMORY: tuple[MetricFamily, ...] = (_BUDGET, _GRANTED)


def of_memory(rows: Sequence[MemoryRow]) -> Iterator[str]:
    """The lines of these metrics."""
    yield from head(_BUDGET)
    for row in rows:
        if not row.holder:
            yield f'{_BUDGET.name}{{device="{row.device}"}} {row.bytes}'
    yield from head(_GRANTED)
    for row in rows:
        if row.holder:
            label = f'device="{row.device}",holder="{escaped(row.holder)}"'
            yield f"{_GRANTED.name}{{{label}}} {row.bytes}"

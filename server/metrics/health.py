"""The metric of how each version is: its state, and why."""

from collections.abc import Iterable, Iterator

from server.health.monitor import HealthRow
from server.metrics.metric_family import MetricFamily, escaped, head

_STATE = MetricFamily(
    "modelyard_model_state",
    "gauge",
    "1 for the state that a version is in, and why; version is empty for a model as a whole",
)
OF_HEALTH: tuple[MetricFamily, ...] = (_STATE,)


def of_health(rows: Iterable[HealthRow]) -> Iterator[str]:
    """The lines of this metric."""
    yield from head(_STATE)
    for row, health in rows:
        version = "" if row.version is None else row.version
        yield (
            f'{_STATE.name}{{model="{escaped(row.name)}",version="{version}",'
            f'state="{health.state}",reason_code="{health.code}"}} 1'
        )

"""Metrics of routes: what each arm has answered, and the copies that were not made."""

from collections.abc import Callable, Iterator

from server.metrics.metric_family import MetricFamily, escaped, head
from server.routing.arm_counters import ArmCounters
from server.routing.routing import Routing
from server.routing.table import Key

_ROUTES: tuple[tuple[MetricFamily, Callable[[ArmCounters], float]], ...] = (
    (
        MetricFamily(
            "modelyard_route_requests",
            "counter",
            "Requests of a route by arm, without what clients got wrong or cancelled",
        ),
        lambda window: window.requests,
    ),
    (
        MetricFamily("modelyard_route_errors", "counter", "Those of them that the server failed"),
        lambda window: window.errors,
    ),
    (
        MetricFamily(
            "modelyard_route_in_flight", "gauge", "Requests accepted and not yet answered"
        ),
        lambda window: window.in_flight,
    ),
)

_MIRROR_DROPPED = MetricFamily(
    "modelyard_mirror_dropped",
    "counter",
    "Mirrored requests dropped because the mirror's target was behind",
)

_EXPOSURES_DROPPED = MetricFamily(
    "modelyard_exposures_dropped",
    "counter",
    "Exposures to an arm of an experiment dropped because the connection to the control process "
    "was behind",
)

OF_ROUTES: tuple[MetricFamily, ...] = (
    *(metric for metric, _ in _ROUTES),
    _MIRROR_DROPPED,
    _EXPOSURES_DROPPED,
)


def of_routes(routing: Routing | None) -> Iterator[str]:
    """The lines of these metrics; without `routing` there is no series."""
    rows = [] if routing is None else routing.windows.rows()
    for metric, of_window in _ROUTES:
        yield from head(metric)
        for key, window in rows:
            yield f"{metric.name}{{{_labels(key)}}} {of_window(window)}"
    yield from head(_MIRROR_DROPPED)
    dropped = {} if routing is None else routing.mirrors.dropped
    for key in {**{key: 0 for key, _ in rows if key[-1]}, **dropped}:  # from the start: for rates
        yield f"{_MIRROR_DROPPED.name}{{{_labels(key)}}} {dropped.get(key, 0)}"
    yield from head(_EXPOSURES_DROPPED)
    if routing is not None:
        yield f"{_EXPOSURES_DROPPED.name} {routing.exposures.dropped}"


def _labels(key: Key) -> str:
    route, _, arm, model, version, copies = key
    pairs = {"route": route, "arm": arm, "model": model, "version": version}
    shown = ",".join(f'{name}="{escaped(str(value))}"' for name, value in pairs.items())
    return f'{shown},mirrored="{str(copies).lower()}"'

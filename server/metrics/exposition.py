"""Prometheus metrics: one table, rendered on scrape from the schedulers' plain counters.

`render` is called by `server.metrics.app`, the whole of the metrics port. Names and labels are
Triton's where Triton has the metric; what is ours begins with `modelyard_`. A test holds `METRICS`
against docs/metrics.md.
"""

from collections.abc import Callable, Iterable
from typing import Protocol

from server.health.monitor import HealthRow
from server.metrics.drift import OF_DRIFT
from server.metrics.ensembles import OF_ENSEMBLES, of_ensembles
from server.metrics.health import OF_HEALTH, of_health
from server.metrics.language import OF_LANGUAGE, of_language
from server.metrics.machine_usage import OF_MACHINE, MachineUsage, of_machine
from server.metrics.memory import OF_MEMORY, of_memory
from server.metrics.metric_family import MetricFamily, head
from server.metrics.residency import OF_RESIDENCY, of_residency
from server.metrics.resources import OF_RESOURCES, of_resources
from server.metrics.routes import OF_ROUTES, of_routes
from server.metrics.sequences import OF_SEQUENCES, of_sequences
from server.metrics.version_families import OF_VERSIONS, VersionTexts, labels
from server.routing.routing import Routing
from server.served_version import Models, ServedVersion
from server.trace.tracing import Tracing


class LoopLagSource(Protocol):
    """Worst stalls of the event loop in seconds: since ready, and over the last minute."""

    @property
    def max_seconds(self) -> float: ...
    @property
    def recent_max_seconds(self) -> float: ...


_LOOP: tuple[tuple[MetricFamily, Callable[[LoopLagSource], float]], ...] = (
    (
        MetricFamily(
            "modelyard_event_loop_stall_seconds_max",
            "gauge",
            "Worst stall of the event loop since the server became ready, in seconds",
        ),
        lambda lag: lag.max_seconds,
    ),
    (
        MetricFamily(
            "modelyard_event_loop_stall_seconds_recent_max",
            "gauge",
            "Worst stall of the event loop in the last minute, in seconds",
        ),
        lambda lag: lag.recent_max_seconds,
    ),
)

_TRACING: tuple[tuple[MetricFamily, Callable[[Tracing], float]], ...] = (
    (
        MetricFamily(
            "modelyard_traces_written", "counter", "Traces written to their file or exported"
        ),
        lambda tracing: tracing.written,
    ),
    (
        MetricFamily(
            "modelyard_traces_dropped",
            "counter",
            "Traces lost because their writer or its target could not keep up or failed",
        ),
        lambda tracing: tracing.dropped,
    ),
)

METRICS: tuple[MetricFamily, ...] = (
    *OF_VERSIONS,
    *(metric for metric, _ in _LOOP),
    *(metric for metric, _ in _TRACING),
    *OF_LANGUAGE,
    *OF_SEQUENCES,
    *OF_ENSEMBLES,
    *OF_MEMORY,
    *OF_RESIDENCY,
    *OF_RESOURCES,
    *OF_ROUTES,
    *OF_HEALTH,
    *OF_DRIFT,
    *OF_MACHINE,
)
"""Every metric the server exposes."""


def render(
    models: Models,
    lag: LoopLagSource,
    machine: MachineUsage | None = None,
    tracing: Tracing | None = None,
    texts: VersionTexts | None = None,
    routing: Routing | None = None,
    health: Iterable[HealthRow] = (),
) -> bytes:
    """Prometheus' text format, one group per metric.

    `machine` remembers the CPU clock between scrapes; without one, utilization is since boot.
    Without `tracing` its counters are zero; without `routing` there are no routes. `texts` keeps
    what versions showed at the last scrape, and says what is shown.
    """
    served = list(models.served())
    texts = texts or VersionTexts()
    counters = [(labels(one), one.counters) for one in served if _counts_more(one)]
    lines: list[str] = []
    lines += of_language(counters)
    lines += of_sequences(counters)
    lines += of_ensembles(counters)
    for metric, of_lag in _LOOP:
        lines += (*head(metric), f"{metric.name} {of_lag(lag)}")
    tracing = tracing or Tracing()
    for metric, of_tracing in _TRACING:
        lines += (*head(metric), f"{metric.name} {of_tracing(tracing)}")
    lines += of_memory(models.memory_rows())
    lines += of_residency(models.residency)
    lines += of_resources(models.limiter)
    lines += of_routes(routing)
    lines += of_health(health)
    lines += of_machine(machine or MachineUsage(), texts.shown.cpu)
    lines.append("")
    return (texts.render(served) + "\n".join(lines)).encode()


def _counts_more(served: ServedVersion) -> bool:
    """Whether there is more of it than of every version."""
    counters = served.counters
    return bool(counters.tokens or counters.sequences or counters.steps)

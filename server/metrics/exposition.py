"""Prometheus metrics: one table, rendered on scrape from the schedulers' plain counters.

`render` is called by `server.metrics.app`, the whole of the metrics port. Names and labels are
Triton's where Triton has the metric; what is ours begins with `modelyard_`. A test holds `METRICS`
against docs/metrics.md.
"""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from schedulers.cached_scheduler import CachedScheduler
from schedulers.counters import (
    FAILURE_REASONS,
    FIRST_RESPONSE,
    BucketCounts,
    Counters,
    TwofoldHistogram,
)
from server.health.monitor import HealthRow
from server.metrics.drift import OF_DRIFT
from server.metrics.ensembles import OF_ENSEMBLES, of_ensembles
from server.metrics.health import OF_HEALTH, of_health
from server.metrics.histogram_lines import histogram_lines
from server.metrics.instances import OF_INSTANCES
from server.metrics.language import OF_LANGUAGE, of_language
from server.metrics.machine_usage import OF_MACHINE, MachineUsage, of_machine
from server.metrics.memory import OF_MEMORY, of_memory
from server.metrics.metric_family import MetricFamily, escaped, head
from server.metrics.residency import OF_RESIDENCY, of_residency
from server.metrics.resources import OF_RESOURCES, of_resources
from server.metrics.routes import OF_ROUTES, of_routes
from server.metrics.sequences import OF_SEQUENCES, of_sequences
from server.routing.routing import Routing
from server.served_version import Models, ServedVersion
from server.settings.metrics_config import MetricsConfig
from server.trace.tracing import Tracing


class LoopLagSource(Protocol):
    """Worst stalls of the event loop in seconds: since ready, and over the last minute."""

    @property
    def max_seconds(self) -> float: ...
    @property
    def recent_max_seconds(self) -> float: ...


_PER_VERSION: tuple[tuple[MetricFamily, Callable[[ServedVersion], float]], ...] = (
    (
        MetricFamily("nv_inference_request_success", "counter", "Successful requests"),
        lambda served: served.counters.success,
    ),
    (
        MetricFamily(
            "nv_inference_count", "counter", "Inferences performed (rows, batch sizes summed)"
        ),
        lambda served: served.counters.inferences,
    ),
    (
        MetricFamily("nv_inference_exec_count", "counter", "Model executions (batches)"),
        lambda served: served.counters.executions,
    ),
    (
        MetricFamily(
            "nv_inference_request_duration_us",
            "counter",
            "Time successful requests took from arrival to answer, in microseconds",
        ),
        lambda served: served.counters.success_ns // 1000,
    ),
    (
        MetricFamily(
            "nv_inference_queue_duration_us", "counter", "Time requests waited, in microseconds"
        ),
        lambda served: served.counters.queue_ns // 1000,
    ),
    (
        MetricFamily(
            "nv_inference_compute_input_duration_us",
            "counter",
            "Time spent preparing inputs, in microseconds",
        ),
        lambda served: served.counters.input_ns // 1000,
    ),
    (
        MetricFamily(
            "nv_inference_compute_infer_duration_us",
            "counter",
            "Time spent executing the model, in microseconds",
        ),
        lambda served: served.counters.infer_ns // 1000,
    ),
    (
        MetricFamily(
            "nv_inference_compute_output_duration_us",
            "counter",
            "Time spent on outputs, in microseconds",
        ),
        lambda served: served.counters.output_ns // 1000,
    ),
    (
        MetricFamily(
            "nv_inference_pending_request_count",
            "gauge",
            "Requests queued and not yet executing",
        ),
        lambda served: served.counters.pending,
    ),
    (
        MetricFamily(
            "nv_cache_num_hits_per_model", "counter", "Requests the response cache answered"
        ),
        lambda served: served.counters.cache_hits,
    ),
    (
        MetricFamily(
            "nv_cache_num_misses_per_model",
            "counter",
            "Requests the response cache could not answer and that were executed",
        ),
        lambda served: served.counters.cache_misses,
    ),
    (
        MetricFamily(
            "nv_cache_hit_duration_per_model",
            "counter",
            "Time spent on answering from the response cache, in microseconds",
        ),
        lambda served: served.counters.cache_hit_ns // 1000,
    ),
    (
        MetricFamily(
            "nv_cache_miss_duration_per_model",
            "counter",
            "Time spent on looking up and keeping what the cache did not have, in microseconds",
        ),
        lambda served: served.counters.cache_miss_ns // 1000,
    ),
    (
        MetricFamily(
            "nv_model_load_duration_secs",
            "gauge",
            "Seconds the version took to check, load and warm",
        ),
        lambda served: served.load_seconds,
    ),
    *OF_INSTANCES,
)

_OF_CACHE = "nv_cache_"
"""What only versions with a response cache have, as in Triton."""

_FAILURE = MetricFamily("nv_inference_request_failure", "counter", "Failed requests, by reason")

_HISTOGRAMS: tuple[tuple[MetricFamily, Callable[[Counters], BucketCounts]], ...] = (
    (
        MetricFamily(
            "modelyard_request_duration_seconds",
            "histogram",
            "Time from a successful request's arrival to its answer, in seconds",
        ),
        lambda counters: counters.request_histogram,
    ),
    (
        MetricFamily(
            "modelyard_queue_duration_seconds",
            "histogram",
            "Time successful requests waited before execution, in seconds",
        ),
        lambda counters: counters.queue_histogram,
    ),
)

_FIRST_RESPONSE = MetricFamily(
    FIRST_RESPONSE,
    "histogram",
    "Time from a successful request's arrival to its answer, in milliseconds",
)

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
    *(metric for metric, _ in _PER_VERSION),
    _FAILURE,
    *(metric for metric, _ in _HISTOGRAMS),
    _FIRST_RESPONSE,
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


_DEFAULT = MetricsConfig()


def render(
    models: Models,
    lag: LoopLagSource,
    machine: MachineUsage | None = None,
    tracing: Tracing | None = None,
    shown: MetricsConfig = _DEFAULT,
    routing: Routing | None = None,
    health: Iterable[HealthRow] = (),
) -> bytes:
    """Prometheus' text format, one group per metric.

    `machine` remembers the CPU clock between scrapes; without one, utilization is since boot.
    Without `tracing` its counters are zero; without `routing` there are no routes.
    """
    served = [(labels(one), one) for one in models.served()]
    cached = [row for row in served if isinstance(row[1].scheduler, CachedScheduler)]
    counters = [(label, one.counters) for label, one in served]
    lines: list[str] = []
    for metric, of_version in _PER_VERSION:
        if metric.name.endswith("_duration_us") and not shown.counters:
            continue
        of_cache = metric.name.startswith(_OF_CACHE)
        rows = cached if of_cache else served
        if rows or not of_cache:
            lines += head(metric)
        lines += [f"{metric.name}{{{label}}} {of_version(one)}" for label, one in rows]
    lines += _failures(counters)
    for metric, histogram in _HISTOGRAMS:
        lines += head(metric)
        for label, one in counters:
            lines += histogram_lines(metric.name, label, histogram(one))
    if shown.histograms:
        lines += head(_FIRST_RESPONSE)
        for label, one in counters:
            lines += histogram_lines(_FIRST_RESPONSE.name, label, _first_response(one), 1000)
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
    lines += of_machine(machine or MachineUsage(), shown.cpu)
    lines.append("")
    return "\n".join(lines).encode()


def _failures(counters: Iterable[tuple[str, Counters]]) -> Iterator[str]:
    """With the labels in the order of their names, as Triton's library writes them."""
    yield from head(_FAILURE)
    for label, one in counters:
        before, _, after = label.rpartition(",version=")
        for reason in FAILURE_REASONS:
            shown = f'{before},reason="{reason}",version={after}'
            yield f"{_FAILURE.name}{{{shown}}} {one.failure[reason]}"


def _first_response(counters: Counters) -> BucketCounts:
    """In the buckets that the config's model_metrics chose, or else in ours."""
    both = counters.request_histogram
    return both.second if isinstance(both, TwofoldHistogram) else both


def labels(served: ServedVersion) -> str:
    """The config's metric_tags with `_` in front of their names, `model`, and `version` last."""
    pairs = {
        "_" + _NOT_IN_NAME.sub("_", tag): value
        for tag, value in sorted(served.version.config.metric_tags.items())
    }
    pairs |= {"model": served.version.name, "version": str(served.version.number)}
    return ",".join(f'{name}="{escaped(value)}"' for name, value in pairs.items())


_NOT_IN_NAME = re.compile(r"[^a-zA-Z0-9_]")

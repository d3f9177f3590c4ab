"""Metrics of instances: how many are ready, how long they executed, how many hang."""

from collections.abc import Callable

from server.metrics.metric_family import MetricFamily
from server.served_version import ServedVersion

OF_INSTANCES: tuple[tuple[MetricFamily, Callable[[ServedVersion], float]], ...] = (
    (
        MetricFamily("modelyard_instances", "gauge", "Instances of the version that are ready"),
        lambda served: sum(one.ready for one in served.instances),
    ),
    (
        MetricFamily(
            "modelyard_instance_busy_seconds",
            "counter",
            "Time instances spent on executions, each execution once, in seconds",
        ),
        lambda served: _busy_ns(served) / 1e9,
    ),
    (
        MetricFamily(
            "modelyard_instances_hung",
            "gauge",
            "Instances out of use because an execution inside the server hangs",
        ),
        lambda served: served.scheduler.hung(),
    ),
)
"""Each of a version; the value is worked out when it is asked for."""


def _busy_ns(served: ServedVersion) -> int:
    batches = served.counters.batches.values()
    return sum(one.input_ns + one.infer_ns + one.output_ns for one in batches)

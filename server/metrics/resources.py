"""Metrics of the rate limiter: the resources that executions hold, and how many wait for them."""

from collections.abc import Callable, Iterator

from schedulers.policy.resource_limits import ResourceLimiter, ResourceUsage, device_text
from server.metrics.metric_family import MetricFamily, escaped, head

_ROWS: tuple[tuple[MetricFamily, Callable[[ResourceUsage], int]], ...] = (
    (
        MetricFamily(
            "modelyard_rate_limiter_resource_count", "gauge", "Copies of a resource that there are"
        ),
        lambda usage: usage.copies,
    ),
    (
        MetricFamily(
            "modelyard_rate_limiter_resource_in_use",
            "gauge",
            "Copies of a resource that executions hold",
        ),
        lambda usage: usage.in_use,
    ),
    (
        MetricFamily(
            "modelyard_rate_limiter_waiting_instances",
            "gauge",
            "Instances with requests that wait for a resource",
        ),
        lambda usage: usage.waiting,
    ),
    (
        MetricFamily(
            "modelyard_rate_limiter_waits",
            "counter",
            "Times an instance had to wait for a resource",
        ),
        lambda usage: usage.waits,
    ),
)
OF_RESOURCES: tuple[MetricFamily, ...] = tuple(metric for metric, _ in _ROWS)


def of_resources(limiter: ResourceLimiter | None) -> Iterator[str]:
    """The lines of these metrics; none without `--rate-limit=execution_count`."""
    if limiter is None:
        return
    usage = limiter.usage()
    for metric, value in _ROWS:
        yield from head(metric)
        for one in usage:
            label = (
                f'resource="{escaped(one.resource.name)}",'
                f'device="{device_text(one.resource.device)}"'
            )
            yield f"{metric.name}{{{label}}} {value(one)}"

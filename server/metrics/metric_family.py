"""A metric as Prometheus' text format writes it."""

from typing import NamedTuple


class MetricFamily(NamedTuple):
    """A metric's name, Prometheus type and help text."""

    name: str
    type: str
    help: str


def head(metric: MetricFamily) -> tuple[str, str]:
    """The lines above its series."""
    return f"# HELP {metric.name} {metric.help}", f"# TYPE {metric.name} {metric.type}"


def escaped(value: str) -> str:
    """A label's value, between its quotes."""
    return value.replace("\\", r"\\").replace('"', r"\"").replace("\n", r"\n")

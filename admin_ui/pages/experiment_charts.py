"""An experiment's charts: the arms' intervals over time, one chart a metric. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from admin_ui.traffic.charts import TrafficChart
from control.experiments.metrics import MetricKind

KEY = "experiment"
"""The range of its charts, in their ids."""

MOST_ARMS = 3
"""In one chart, each with its estimate and both ends of its interval."""

Row = Mapping[str, Any]


def interval_charts(
    metrics: Sequence[Row], series: Mapping[tuple[str, str], Sequence[Row]], control: str
) -> list[TrafficChart]:
    """`series`: of a metric and an arm, its points, oldest first. A metric with more arms than are
    shown at once has several charts. Below them, how many units had been seen."""
    charts = []
    for metric in metrics:
        arms = [arm for name, arm in series if name == metric["name"] and series[name, arm]]
        for number in range(0, len(arms), MOST_ARMS):
            shown = {arm: series[metric["name"], arm] for arm in arms[number : number + MOST_ARMS]}
            suffix = f"-{number // MOST_ARMS + 1}" if number else ""
            charts.append(_intervals(metric, shown, suffix, control))
    longest = max(series.values(), key=len, default=())
    if longest:
        at = [str(one["at"]) for one in longest]
        units = [float(one["units"]) for one in longest]
        charts.append(
            TrafficChart("traffic-units", "Units seen", "", ["all arms"], at, [units], {})
        )
    return charts


def scaled(kind: str, value: float | None) -> float | None:
    """A difference as people read it: points of a proportion, percent of a quantile's ratio."""
    if value is None:
        return None
    if kind == MetricKind.PROPORTION:
        return round(value * 100, 4)
    return round((value - 1) * 100, 4) if kind == MetricKind.QUANTILE else round(value, 6)


def unit_of(kind: str) -> str:
    return {MetricKind.PROPORTION: "points", MetricKind.QUANTILE: "%"}.get(MetricKind(kind), "")


def _intervals(
    metric: Row, arms: Mapping[str, Sequence[Row]], suffix: str, control: str
) -> TrafficChart:
    """Arms are measured at the same moments; one that is missing at some has None there."""
    moments = sorted({str(one["at"]) for points in arms.values() for one in points})
    columns: dict[str, list[float | None]] = {}
    for arm, points in arms.items():
        known = {str(one["at"]): one for one in points}
        rows = [known.get(at, {}) for at in moments]
        for label, key in ((arm, "estimate"), (f"{arm} lower", "lower"), (f"{arm} upper", "upper")):
            columns[label] = [scaled(metric["kind"], row.get(key)) for row in rows]
    numbers = range(len(arms))
    return TrafficChart(
        f"traffic-{metric['name']}{suffix}",
        f"{metric['name']}: difference from {control}, with its interval",
        unit_of(metric["kind"]),
        list(columns),
        moments,
        list(columns.values()),
        {},
        styles=[(number, thin) for number in numbers for thin in (False, True, True)],
        bands=[(number * 3 + 2, number * 3 + 1) for number in numbers],
    )

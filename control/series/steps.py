"""What a step of an ensemble did in a stretch of time, from what was counted. Pure."""

import math

from control.series.points import SeriesPoint, StepPoint, buckets_of
from control.series.step_views import StepFigures
from control.statistics.histogram import quantile_of_buckets


def figures_of(step: StepPoint, whole: SeriesPoint, mapped: bool, span_s: float) -> StepFigures:
    """Of one step in `span_s` seconds; `whole`: what was counted of the ensemble."""
    calls = step.answered + step.failed + step.cancelled
    requests = whole.succeeded + whole.failures
    decided = requests if mapped else step.rows + step.skipped_rows
    buckets = [*buckets_of(step.latency)]

    def quantile(q: float) -> float | None:
        return _digits(quantile_of_buckets(buckets, q) * 1e3) if buckets else None

    return StepFigures(
        calls,
        step.answered,
        step.failed,
        step.cancelled,
        step.skipped,
        _ratio(step.skipped if mapped else step.skipped_rows, decided),
        _digits(calls / span_s) or 0.0,
        _ratio(calls, requests),
        _ratio(step.rows, step.answered + step.failed),
        _ratio(step.failed, calls),
        quantile(0.5),
        quantile(0.95),
        quantile(0.99),
        _ratio(step.queue_us / 1e3, step.answered),
        _ratio(step.compute_us / 1e3, step.answered),
    )


def _ratio(part: float, whole: float) -> float | None:
    return _digits(part / whole) if whole else None


def _digits(value: float) -> float | None:
    """To four of them."""
    return None if math.isnan(value) else float(f"{value:.4g}")

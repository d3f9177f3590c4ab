"""What an experiment says so far: every arm against the control, metric by metric. Pure.

Intervals hold however often this is called. Of all comparisons together, at most a share of `alpha`
of experiments without any difference ever calls one different (Holm).
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum

from control.experiments.metrics import (
    Direction,
    Metric,
    MetricKind,
    MetricSource,
    MissingValueRule,
)
from control.experiments.sums import UNITS, Key, Sums
from control.experiments.terms import ExperimentTerms
from control.statistics.histogram import Histogram, lasting_quantile_ratio
from control.statistics.holm import adjusted
from control.statistics.sequential import (
    Interval,
    Moments,
    difference_of_means,
    difference_of_rates,
    evidence,
)
from control.statistics.srm import SampleRatio, sample_ratio

_NOTHING = Sums(0, 0, Moments(), Histogram())


class ExperimentDecision(StrEnum):
    BETTER = "better"
    WORSE = "worse"
    SAME = "same"  # any difference is smaller than the one worth acting on
    OPEN = "open"


@dataclass(frozen=True, slots=True)
class Comparison:
    """One arm against the control. `value`s and `estimate` are NaN while there is nothing.

    `estimate` and `interval`: of the difference, arm minus control; of quantiles the ratio.
    `p_value`: at which alpha the interval leaves "no difference" out; `adjusted` for how many
    comparisons there are. `n`: units or requests that count, in both.
    """

    metric: Metric
    arm: str
    value: float
    control_value: float
    n: int
    estimate: float
    interval: Interval
    p_value: float
    adjusted: float
    decision: ExperimentDecision


@dataclass(frozen=True, slots=True)
class Analysis:
    """`progress`: units seen over the horizon; `crossed`: share of units seen in two arms."""

    control: str
    units: Mapping[str, int]
    progress: float
    crossed: float
    sample_ratio: SampleRatio
    comparisons: tuple[Comparison, ...]

    def of(self, arm: str, metric: str) -> Comparison:
        return next(one for one in self.comparisons if (one.arm, one.metric.name) == (arm, metric))


@dataclass(frozen=True, slots=True)
class _UnadjustedComparison:
    """One comparison before it is known what the others say."""

    value: float
    control_value: float
    n: int
    null: float
    at: Callable[[float], Interval]

    @property
    def estimate(self) -> float:
        if self.null == 0.0:
            return self.value - self.control_value
        return self.value / self.control_value if self.control_value > 0 else math.nan


def judge(terms: ExperimentTerms, sums: Mapping[Key, Sums], moved: bool = False) -> Analysis:
    """`moved`: the route's weights were changed meanwhile, so that there are no shares of units the
    arms were meant to get."""
    units = {arm.name: sums.get((arm.name, UNITS), _NOTHING).n for arm in terms.arms}
    crossed = sum(sums.get((arm.name, UNITS), _NOTHING).ones for arm in terms.arms)
    total = sum(units.values())
    measures = {
        (arm.name, metric.name): _measure(terms, metric, sums, (arm.name, terms.control))
        for arm in terms.arms[1:]
        for metric in terms.metrics
    }
    p_values = {key: evidence(one.at, one.null) for key, one in measures.items()}
    corrected = adjusted(p_values)
    comparisons = tuple(
        _comparison(terms, metric, arm.name, measures[key], p_values[key], corrected[key])
        for arm in terms.arms[1:]
        for metric in terms.metrics
        for key in [(arm.name, metric.name)]
    )
    return Analysis(
        terms.control,
        units,
        total / terms.horizon,
        crossed / total if total else 0.0,
        SampleRatio(None, mismatch=False) if moved else sample_ratio(units, terms.shares),
        comparisons,
    )


def interval(
    terms: ExperimentTerms,
    metric: Metric,
    sums: Mapping[Key, Sums],
    arms: tuple[str, str],
    alpha: float,
) -> Interval:
    """Of the first arm against the second, in one metric, by itself."""
    return _measure(terms, metric, sums, arms).at(alpha)


def null_of(metric: Metric) -> float:
    """What an interval has where the arms do not differ."""
    return 1.0 if metric.kind is MetricKind.QUANTILE else 0.0


def finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _measure(
    terms: ExperimentTerms, metric: Metric, sums: Mapping[Key, Sums], arms: tuple[str, str]
) -> _UnadjustedComparison:
    a, b = (_complete(metric, sums, name) for name in arms)
    measure = {
        MetricKind.PROPORTION: _rates,
        MetricKind.MEAN: _means,
        MetricKind.QUANTILE: _quantiles,
    }[metric.kind]
    return measure(metric, a, b, terms.horizon)


def _complete(metric: Metric, sums: Mapping[Key, Sums], arm: str) -> Sums:
    """With a zero for every unit that gave no value, where the metric says so."""
    found = sums.get((arm, metric.name), _NOTHING)
    if metric.source is MetricSource.SERVER or metric.missing is not MissingValueRule.ZERO:
        return found
    silent = max(0, sums.get((arm, UNITS), _NOTHING).n - found.n)
    zeros = found.moments.merged(Moments(silent))
    return Sums(found.n + silent, found.ones, zeros, found.histogram)


def _rates(_: Metric, a: Sums, b: Sums, horizon: int) -> _UnadjustedComparison:
    def at(alpha: float) -> Interval:
        return difference_of_rates(a.ones, a.n, b.ones, b.n, alpha, horizon)

    return _UnadjustedComparison(_rate(a), _rate(b), a.n + b.n, 0.0, at)


def _rate(sums: Sums) -> float:
    return sums.ones / sums.n if sums.n else math.nan


def _means(_: Metric, a: Sums, b: Sums, horizon: int) -> _UnadjustedComparison:
    def at(alpha: float) -> Interval:
        return difference_of_means(a.moments, b.moments, alpha, horizon)

    return _UnadjustedComparison(_mean(a), _mean(b), a.n + b.n, 0.0, at)


def _mean(sums: Sums) -> float:
    return sums.moments.mean if sums.moments.n else math.nan


def _quantiles(metric: Metric, a: Sums, b: Sums, horizon: int) -> _UnadjustedComparison:
    q = metric.quantile or 0.5

    def at(alpha: float) -> Interval:
        return lasting_quantile_ratio(a.histogram, b.histogram, q, alpha, horizon)

    return _UnadjustedComparison(
        a.histogram.quantile(q), b.histogram.quantile(q), a.n + b.n, 1.0, at
    )


def _comparison(
    terms: ExperimentTerms,
    metric: Metric,
    arm: str,
    measure: _UnadjustedComparison,
    p_value: float,
    corrected: float,
) -> Comparison:
    interval = measure.at(terms.alpha)
    return Comparison(
        metric,
        arm,
        measure.value,
        measure.control_value,
        measure.n,
        measure.estimate,
        interval,
        p_value,
        corrected,
        _decision(terms, metric, measure, interval, corrected),
    )


def _decision(
    terms: ExperimentTerms,
    metric: Metric,
    measure: _UnadjustedComparison,
    interval: Interval,
    corrected: float,
) -> ExperimentDecision:
    if corrected <= terms.alpha:
        higher = interval.lower > measure.null
        return (
            ExperimentDecision.BETTER
            if higher == (metric.direction is Direction.UP)
            else ExperimentDecision.WORSE
        )
    low, high = measure.null - metric.minimal_effect, measure.null + metric.minimal_effect
    if low < interval.lower and interval.upper < high:
        return ExperimentDecision.SAME
    return ExperimentDecision.OPEN

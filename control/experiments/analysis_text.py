"""An analysis in the words of whoever has to decide. Pure."""

import math
from collections.abc import Iterable

from control.experiments.evaluation import Analysis, Comparison, ExperimentDecision
from control.experiments.metrics import MetricKind

CROSSED_TOO_MANY = 0.01


def verdict(analysis: Analysis) -> str:
    """What to make of it all, in one or two sentences."""
    doubt = _doubt(analysis)
    if doubt:
        return doubt
    arms = sorted({one.arm for one in analysis.comparisons}, key=list(analysis.units).index)
    return " ".join(_of_arm(analysis, arm) for arm in arms) + _crossed(analysis)


def sentence(one: Comparison, control: str) -> str:
    """One comparison, e.g. "conversion: b is better than a by 1.3 points (0.4 to 2.2)"."""
    if not math.isfinite(one.estimate):
        return f"{one.metric.name}: nothing to compare yet"
    span = f"({_span(one)})"
    size = _size(one, one.estimate)
    match one.decision:
        case ExperimentDecision.BETTER | ExperimentDecision.WORSE:
            return f"{one.metric.name}: {one.arm} is {one.decision} than {control}, {size} {span}"
        case ExperimentDecision.SAME:
            least = _amount(one, one.metric.minimal_effect)
            return (
                f"{one.metric.name}: {one.arm} and {control} differ by less than {least}, which is "
                f"what would matter {span}"
            )
    return f"{one.metric.name}: not clear yet, {size} {span}"


def _doubt(analysis: Analysis) -> str:
    total = sum(analysis.units.values())
    if analysis.sample_ratio.mismatch:
        counted = ", ".join(f"{arm} {units:,}" for arm, units in analysis.units.items())
        return (
            f"Do not trust these numbers: the arms did not get the share of units they were meant "
            f"to get ({counted}; by chance less than once in a thousand experiments). Find out "
            "which units are missing, or whether the route's weights were changed, and start again."
        )
    if total == 0 and not any(one.n for one in analysis.comparisons):
        return "Nobody has seen the experiment yet."
    return ""


def _of_arm(analysis: Analysis, arm: str) -> str:
    mine = [one for one in analysis.comparisons if one.arm == arm]
    better, worse, same = (
        [one for one in mine if one.decision is decision]
        for decision in (
            ExperimentDecision.BETTER,
            ExperimentDecision.WORSE,
            ExperimentDecision.SAME,
        )
    )
    if better and worse:
        return f"{arm} is better in {_names(better)} but worse in {_names(worse)}: weigh them."
    if worse:
        return (
            f"{arm} is worse than {analysis.control} in {_names(worse)}: keep {analysis.control}."
        )
    if better and len(better) + len(same) == len(mine):
        return f"{arm} is better than {analysis.control} in {_names(better)}: take {arm}."
    if better:
        unclear = [one for one in mine if one.decision is ExperimentDecision.OPEN]
        return f"{arm} is better in {_names(better)}; {_names(unclear)} is not clear yet."
    if len(same) == len(mine):
        return f"{arm} and {analysis.control} differ by nothing that matters: take either."
    return f"{arm}: no difference found{_how_far(analysis)}."


def _how_far(analysis: Analysis) -> str:
    if analysis.progress >= 1:
        return (
            " in the planned number of units; if there is one, it is smaller than the intervals "
            "say, so stop here or plan a larger experiment"
        )
    return f" yet, after {analysis.progress:.0%} of the planned units; let it run"


def _crossed(analysis: Analysis) -> str:
    if analysis.crossed <= CROSSED_TOO_MANY:
        return ""
    return (
        f" But {analysis.crossed:.1%} of the units saw more than one arm, which hides differences: "
        "look for a unit that is not the same from request to request, or weights that moved."
    )


def _names(comparisons: Iterable[Comparison]) -> str:
    return " and ".join(one.metric.name for one in comparisons)


def _span(one: Comparison) -> str:
    bounds = one.interval.lower, one.interval.upper
    if not any(map(math.isfinite, bounds)) or bounds == (0.0, math.inf):
        return "too little to say how exact that is"
    low, high = (_signed(one, bound) for bound in bounds)
    return f"{low} to {high}"


def _size(one: Comparison, value: float) -> str:
    if one.metric.kind is MetricKind.QUANTILE:
        return f"{_amount(one, abs(value - 1))} {'slower' if value >= 1 else 'faster'}"
    return f"{_amount(one, abs(value))} {'higher' if value >= 0 else 'lower'}"


def _signed(one: Comparison, value: float) -> str:
    off = value - 1 if one.metric.kind is MetricKind.QUANTILE else value
    if math.isinf(off):
        return "any amount"
    return f"{'-' if off < 0 else '+'}{_amount(one, abs(off))}"


def _amount(one: Comparison, value: float) -> str:
    match one.metric.kind:
        case MetricKind.PROPORTION:
            return f"{value * 100:.2g} points" if value < 0.1 else f"{value * 100:.1f} points"
        case MetricKind.QUANTILE:
            return f"{value:.0%}" if value >= 0.01 else f"{value:.1%}"
    return f"{value:.3g}"

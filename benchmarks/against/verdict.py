"""What two samples say: the ratio of their medians, and whether that is good enough."""

import random
from collections.abc import Sequence
from statistics import median
from typing import NamedTuple

RESAMPLES = 10_000


class Criterion(NamedTuple):
    """What is measured. `limit`: the ratio here to there that is still as good as before."""

    unit: str
    limit: float
    more_is_better: bool = False


CPU_US = Criterion("CPU-µs", 1.03)
TOKENS_PER_S = Criterion("tokens/s", 0.98, more_is_better=True)


class Interval(NamedTuple):
    """The ratio of two medians, and its 95 % bootstrap interval."""

    ratio: float
    lower: float
    upper: float


class RatioRow(NamedTuple):
    """Medians of one measurement: this tree's, the other's, and their ratio."""

    name: str
    criterion: Criterion
    rounds: int
    here: float
    there: float
    interval: Interval


def row(name: str, criterion: Criterion, here: Sequence[float], there: Sequence[float]) -> RatioRow:
    """Of as many numbers of each."""
    interval = ratio_of_medians(here, there)
    return RatioRow(name, criterion, len(here), median(here), median(there), interval)


def ratio_of_medians(
    here: Sequence[float], there: Sequence[float], seed: int = 0, resamples: int = RESAMPLES
) -> Interval:
    """With its bootstrap interval: both samples drawn again, with replacement."""
    dice = random.Random(seed)
    drawn = sorted(
        median(dice.choices(here, k=len(here))) / median(dice.choices(there, k=len(there)))
        for _ in range(resamples)
    )
    lower, upper = drawn[int(0.025 * resamples)], drawn[int(0.975 * resamples)]
    return Interval(median(here) / median(there), lower, upper)


def verdict(criterion: Criterion, interval: Interval) -> str:
    """MISSED where the whole interval is worse than the limit, met where none of it is.

    Between the two it is "met?": no worse as far as can be told.
    """
    if criterion.more_is_better:
        missed, met = interval.upper < criterion.limit, interval.lower >= criterion.limit
    else:
        missed, met = interval.lower > criterion.limit, interval.upper <= criterion.limit
    return "MISSED" if missed else "met" if met else "met?"


def table(revision: str, rows: Sequence[RatioRow]) -> str:
    """Markdown."""
    lines = [
        f"| what | unit | rounds | here | at {revision} | ratio | 95 % | asked for | |",
        "|---|---|---:|---:|---:|---:|---|---|---|",
    ]
    for one in rows:
        ratio, lower, upper = one.interval
        sign = "≥" if one.criterion.more_is_better else "≤"
        lines.append(
            f"| {one.name} | {one.criterion.unit} | {one.rounds} "
            f"| {one.here:.1f} | {one.there:.1f} | {ratio:.3f} "
            f"| {lower:.3f} to {upper:.3f} | {sign} {one.criterion.limit:g} "
            f"| {verdict(one.criterion, one.interval)} |"
        )
    return "\n".join(lines)

"""How far two distributions of one feature lie apart: PSI and KS, with what chance does. Pure.

PSI, the population stability index, is Σ (p - q) ln(p / q) over bins. Of two samples of the same
distribution it is not 0: over B bins, n and m values, it is about (1/n + 1/m) χ² with B - 1 degrees
of freedom (Yurdakul 2018). What is told is PSI less its mean under chance, and its p-value.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from control.drift.categories import comparable
from control.drift.merge import observations
from control.drift.numeric import buckets_of, edges_of
from control.drift.points import CategoryCounts, Distribution, NumericCounts
from control.statistics.tails import chi2_tail, two_sample_tail

BINS = 10
FEWEST_EXPECTED = 5.0
"""In a bin, of the smaller sample, if both were the same: fewer make no χ². Bins with fewer are
merged."""

_SMOOTHING = 0.5
"""Added to each bin, which an empty one would make infinite otherwise."""

NOT_FINITE = "not finite"
"""The bin of NaN and infinities."""


class Bin(NamedTuple):
    """`low` to `high` of numbers (below `high`), None of a category; how many values of each."""

    name: str
    low: float | None
    high: float | None
    reference: int
    current: int


@dataclass(frozen=True, slots=True)
class DriftComparison:
    """Of a feature's reference and current values. `psi`: less what chance alone makes of it, 0 at
    least; `raw_psi` is as it was. `ks`: None of categories. `bins`: for a chart."""

    n_reference: int
    n_current: int
    psi: float
    raw_psi: float
    psi_p: float
    psi_lower: float
    ks: float | None
    ks_p: float | None
    bins: tuple[Bin, ...]


def compare(reference: Distribution, current: Distribution) -> DriftComparison | None:
    """None where they are of two kinds, or one is of no values."""
    n, m = observations(reference), observations(current)
    if not n or not m:
        return None
    if isinstance(reference, NumericCounts) and isinstance(current, NumericCounts):
        bins, ks = _numeric(reference, current)
    elif isinstance(reference, CategoryCounts) and isinstance(current, CategoryCounts):
        bins, ks = _categories(reference, current), None
    else:
        return None
    raw, psi_p, psi, lower = _stability(_merged_for_chance(bins, min(n, m) / (n + m)), n, m)
    ks_p = None if ks is None else two_sample_tail(ks, n, m)
    return DriftComparison(n, m, psi, raw, psi_p, lower, ks, ks_p, tuple(bins))


SURELY = 3.7
"""Standard errors below PSI at which `psi_lower` lies: one in 10,000."""


def _stability(bins: Sequence[Bin], n: int, m: int) -> tuple[float, float, float, float]:
    """PSI as it is, its p-value, PSI less the mean of chance, and a lower bound of the true one."""
    total = _SMOOTHING * len(bins)
    raw = 0.0
    for one in bins:
        p = (one.current + _SMOOTHING) / (m + total)
        q = (one.reference + _SMOOTHING) / (n + total)
        raw += (p - q) * math.log(p / q)
    degrees, unit = len(bins) - 1, 1 / n + 1 / m
    psi = max(0.0, raw - degrees * unit)
    spread = math.sqrt(2 * degrees * unit * unit + 4 * unit * psi)
    return raw, chi2_tail(raw / unit, degrees), psi, max(0.0, psi - SURELY * spread)


def _merged_for_chance(bins: Sequence[Bin], smaller: float) -> list[Bin]:
    """With none that few values are expected in; `smaller`: the smaller sample's share of both.
    Neighbours of numbers are merged; of categories, and of one left over, whatever is small."""
    kept: list[Bin] = []
    waiting: Bin | None = None
    for one in bins:
        one = one if waiting is None else _both(waiting, one)
        is_enough = (one.reference + one.current) * smaller >= FEWEST_EXPECTED
        waiting = None if is_enough else one
        if is_enough:
            kept.append(one)
    if waiting is not None:
        kept = [*kept[:-1], _both(kept[-1], waiting)] if kept else [waiting]
    return kept


def _both(one: Bin, other: Bin) -> Bin:
    return Bin(
        one.name, one.low, other.high, one.reference + other.reference, one.current + other.current
    )


def _numeric(reference: NumericCounts, current: NumericCounts) -> tuple[list[Bin], float]:
    """Bins that hold about a tenth of the reference each; single values where those are few."""
    shift = max(reference.shift, current.shift)
    then, now = buckets_of(reference, shift), buckets_of(current, shift)
    n, m = max(1, sum(then.values())), max(1, sum(now.values()))
    share = n / BINS if len(then) > BINS else 1
    bins: list[Bin] = []
    distance = 0.0
    below_then = below_now = bin_then = bin_now = 0
    first: int | None = None
    for bucket in sorted(then.keys() | now.keys()):
        first = bucket if first is None else first
        bin_then += then.get(bucket, 0)
        bin_now += now.get(bucket, 0)
        distance = max(distance, abs((below_then + bin_then) / n - (below_now + bin_now) / m))
        if bin_then and (below_then + bin_then) // share > below_then // share:
            bins.append(_bin(first, bucket, shift, bin_then, bin_now))
            below_then, below_now = below_then + bin_then, below_now + bin_now
            bin_then = bin_now = 0
            first = None
    if first is not None:  # above, or between, what the reference has
        bins.append(_bin(first, bucket, shift, bin_then, bin_now))
    if reference.not_finite or current.not_finite:
        bins.append(Bin(NOT_FINITE, None, None, reference.not_finite, current.not_finite))
    return bins, distance if then and now else 0.0


def _bin(first: int, last: int, shift: int, then: int, now: int) -> Bin:
    low, high = edges_of(first, shift)[0], edges_of(last, shift)[1]
    name = f"{low:.4g}" if first == last and shift == 0 else f"{low:.4g} to {high:.4g}"
    return Bin(name, low, high, then, now)


def _categories(reference: CategoryCounts, current: CategoryCounts) -> list[Bin]:
    """The most frequent of both together first."""
    then, now = comparable(reference, current)
    total = {name: then.get(name, 0) + now.get(name, 0) for name in then.keys() | now.keys()}
    names = sorted(total, key=lambda name: (-total[name], name))
    return [Bin(name, None, None, then.get(name, 0), now.get(name, 0)) for name in names]

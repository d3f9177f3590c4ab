"""Adds up what several instances have counted of one series. Pure.

Counters and histograms are sums. A gauge that somebody has set is what was set last, as in Triton,
where all instances set the same one; one that is only incremented is the sum.
"""

from typing import NamedTuple

from backends.process.call_messages import SeriesValue
from backends.process.custom_metrics import GAUGE


class SeriesTotal(NamedTuple):
    """`set_ns`: when a gauge was last set; 0 for what is added up. `counts`: of each bucket, and of
    the last one, which has no bound."""

    value: float
    set_ns: int = 0
    bounds: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    lasting: bool = True


Labels = tuple[tuple[str, str], ...]


def total_of(one: SeriesValue, kind: str) -> SeriesTotal:
    """One instance's. A gauge lasts no longer than its worker."""
    is_gauge = kind == GAUGE
    set_ns = one.set_ns if is_gauge else 0
    return SeriesTotal(one.value, set_ns, one.bounds, one.counts, lasting=not is_gauge)


def add(
    totals: dict[Labels, SeriesTotal], labels: Labels, one: SeriesTotal, lasting: bool = False
) -> None:
    """Merge one more into the series of these labels; `lasting`: only what outlives a worker."""
    if lasting and not one.lasting:
        return
    before = totals.get(labels)
    totals[labels] = one if before is None else _merged(before, one)


def _merged(one: SeriesTotal, other: SeriesTotal) -> SeriesTotal:
    if one.set_ns or other.set_ns:
        return max(one, other, key=lambda total: total.set_ns)
    if one.bounds != other.bounds:
        return one if len(one.bounds) >= len(other.bounds) else other
    counts = tuple(map(sum, zip(one.counts, other.counts, strict=True)))
    return one._replace(value=one.value + other.value, counts=counts)

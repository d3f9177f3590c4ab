"""How two answers to the same request, and two series of the same time, differ. Pure."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from control.statistics.paired import mean_interval
from control.statistics.sequential import difference_of_rates, moments_of

ALPHA = 0.05

Row = Mapping[str, Any]
Column = Sequence[float | None]


@dataclass(frozen=True, slots=True)
class OutputDifference:
    """Of an output of the same name: in words, and the classes of both, by index."""

    name: str
    words: str
    same: bool
    classes: list[tuple[str, str, float | None, float | None]]


class SeriesDifference(NamedTuple):
    """Of one figure: both values, and the second minus the first with its interval of 95 %; None
    where nothing is known."""

    label: str
    unit: str
    first: float | None
    second: float | None
    lower: float | None
    upper: float | None

    @property
    def verdict(self) -> str:
        if self.lower is None or self.upper is None:
            return "not known yet"
        if self.lower > 0:
            return "the second is higher"
        return "the second is lower" if self.upper < 0 else "no difference that can be told"


def outputs_differ(first: Sequence[Row], second: Sequence[Row]) -> list[OutputDifference]:
    """The outputs of both, in the order of the first."""
    others = {str(one.get("name")): one for one in second}
    found = [_difference(one, others.pop(str(one.get("name")), None)) for one in first]
    return found + [OutputDifference(name, "only the second has it", False, []) for name in others]


def _difference(one: Row, other: Row | None) -> OutputDifference:
    name = str(one.get("name"))
    if other is None:
        return OutputDifference(name, "only the first has it", False, [])
    a, b = list(one.get("data") or ()), list(other.get("data") or ())
    if a == b:
        return OutputDifference(name, "the same", True, classes_of(a, b))
    if len(a) != len(b):
        words = f"{len(a):,} values against {len(b):,}"
        return OutputDifference(name, words, False, classes_of(a, b))
    if not all(isinstance(value, int | float) for value in (*a, *b)):
        differing = sum(x != y for x, y in zip(a, b, strict=True))
        words = f"{differing:,} of {len(a):,} values differ"
        return OutputDifference(name, words, False, classes_of(a, b))
    apart = [abs(x - y) for x, y in zip(a, b, strict=True)]
    words = (
        f"{sum(value > 0 for value in apart):,} of {len(a):,} values differ, "
        f"by {max(apart):.4g} at most and {sum(apart) / len(apart):.4g} on average"
    )
    return OutputDifference(name, words, False, [])


def classes_of(
    first: Sequence[Any], second: Sequence[Any]
) -> list[tuple[str, str, float | None, float | None]]:
    """Label, index and both scores of the classes in "0.93:7:seven", the likeliest first."""
    a, b = _scores(first), _scores(second)
    keys = sorted({**a, **b}, key=lambda key: -max(a.get(key, -math.inf), b.get(key, -math.inf)))
    return [(label, index, a.get((index, label)), b.get((index, label))) for index, label in keys]


def _scores(values: Sequence[Any]) -> dict[tuple[str, str], float]:
    found = {}
    for value in values:
        score, _, rest = str(value).partition(":")
        index, _, label = rest.partition(":")
        try:
            found[str(int(index)), label] = float(score)
        except ValueError:
            return {}
    return found


def series_differ(first: Row | None, second: Row | None, step_s: int) -> list[SeriesDifference]:
    """The error rate by its counts; the others point by point, which both served under the same
    load. Nothing where one of them has no series."""
    if first is None or second is None:
        return []
    rows = [_errors(first, second, step_s)]
    for label, field in (
        ("Median latency", "latency_ms_p50"),
        ("99th percentile", "latency_ms_p99"),
        ("Mean time in the queue", "queue_ms"),
        ("Mean compute time", "compute_ms"),
    ):
        rows.append(_paired(label, first[field], second[field]))
    return rows


def _errors(first: Row, second: Row, step_s: int) -> SeriesDifference:
    (bad_a, n_a), (bad_b, n_b) = _counts(first, step_s), _counts(second, step_s)
    if not (n_a and n_b):
        return SeriesDifference("Failed requests", "%", None, None, None, None)
    found = difference_of_rates(bad_b, n_b, bad_a, n_a, ALPHA)
    rates = (100 * bad_a / n_a, 100 * bad_b / n_b)
    return SeriesDifference(
        "Failed requests", "%", *rates, *_finite(100 * found.lower, 100 * found.upper)
    )


def _counts(one: Row, step_s: int) -> tuple[int, int]:
    requests = sum(rate or 0 for rate in one["requests_per_s"]) * step_s
    failed = sum(rate or 0 for column in one["failed_per_s"].values() for rate in column) * step_s
    return min(round(failed), round(requests)), round(requests)


def _paired(label: str, first: Column, second: Column) -> SeriesDifference:
    both = [(a, b) for a, b in zip(first, second, strict=True) if a is not None and b is not None]
    if not both:
        return SeriesDifference(label, "ms", None, None, None, None)
    found = mean_interval(moments_of(b - a for a, b in both), ALPHA)
    means = (sum(a for a, _ in both) / len(both), sum(b for _, b in both) / len(both))
    return SeriesDifference(label, "ms", *means, *_finite(found.lower, found.upper))


def _finite(lower: float, upper: float) -> tuple[float | None, float | None]:
    return (lower, upper) if math.isfinite(lower) and math.isfinite(upper) else (None, None)

"""What an experiment measures: declared before it starts, so that nobody picks a lucky number.
Pure."""

import math
import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

import msgspec

from control.errors import Invalid

NAME = re.compile(r"[a-z][a-z0-9_-]{0,62}")


class MetricKind(StrEnum):
    PROPORTION = "proportion"  # of units, or of requests where the server counts
    MEAN = "mean"  # of a number per unit
    QUANTILE = "quantile"  # of latencies in seconds


class Direction(StrEnum):
    """Which way is better."""

    UP = "up"
    DOWN = "down"


class MetricSource(StrEnum):
    """Where values come from. Gateways count requests, not units: where a few units send most of
    them, what they count looks surer than it is."""

    FEEDBACK = "feedback"  # clients send values
    SERVER = "server"


class MissingValueRule(StrEnum):
    """What an exposed unit without feedback counts as."""

    ZERO = "zero"
    IGNORED = "ignored"


class RepeatedValueRule(StrEnum):
    """What several values of one unit come to."""

    FIRST = "first"
    MAX = "max"
    SUM = "sum"
    EACH = "each"  # every one counts for itself: quantiles only


class Metric(msgspec.Struct, frozen=True):
    """`minimal_effect`: the smallest difference worth acting on: absolute for proportions (0.01 is
    one point) and means (in their unit), a share for quantiles (0.1 is ten percent longer)."""

    name: str
    kind: MetricKind
    direction: Direction
    minimal_effect: float
    source: MetricSource = MetricSource.FEEDBACK
    missing: MissingValueRule = MissingValueRule.IGNORED
    repeated: RepeatedValueRule = RepeatedValueRule.FIRST
    quantile: float | None = None


_REPEATED = {
    MetricKind.PROPORTION: (RepeatedValueRule.FIRST, RepeatedValueRule.MAX),
    MetricKind.MEAN: (RepeatedValueRule.FIRST, RepeatedValueRule.MAX, RepeatedValueRule.SUM),
    MetricKind.QUANTILE: (RepeatedValueRule.EACH,),
}
_SOURCES = {
    MetricKind.PROPORTION: (MetricSource.FEEDBACK, MetricSource.SERVER),
    MetricKind.MEAN: (MetricSource.FEEDBACK,),
    MetricKind.QUANTILE: (MetricSource.SERVER, MetricSource.FEEDBACK),
}
_MISSING = {
    MetricKind.PROPORTION: (MissingValueRule.ZERO, MissingValueRule.IGNORED),
    MetricKind.MEAN: (MissingValueRule.IGNORED, MissingValueRule.ZERO),
    MetricKind.QUANTILE: (MissingValueRule.IGNORED,),
}
"""What each kind may have; the first is the default."""

_VALUES = {
    MetricKind.PROPORTION: (0.0, 1.0, "0, 1, true or false"),
    MetricKind.MEAN: (-1e12, 1e12, "a number of at most 1e12"),
    MetricKind.QUANTILE: (0.0, 1e12, "seconds from 0 on"),
}

C = TypeVar("C", bound=StrEnum)


def parse_metric(raw: Mapping[str, Any]) -> Metric:
    """Raises Invalid naming the metric, the key and what is allowed."""
    name = raw.get("name")
    if not isinstance(name, str) or not NAME.fullmatch(name):
        raise Invalid(
            f"{name!r:.80} cannot name a metric: use 1 to 63 of a-z, 0-9, '_' and '-', with a "
            "letter first",
            "metrics",
        )
    unknown = sorted(map(str, raw.keys() - set(Metric.__struct_fields__)))
    if unknown:
        keys = ", ".join(Metric.__struct_fields__)
        raise Invalid(f"metric '{name}' has no '{unknown[0]:.80}'; it has {keys}", "metrics")
    kind = _one_of(name, raw, "kind", tuple(MetricKind), None)
    source = _one_of(name, raw, "source", _SOURCES[kind], _SOURCES[kind][0])
    missing = (MissingValueRule.IGNORED,) if source is MetricSource.SERVER else _MISSING[kind]
    return Metric(
        name,
        kind,
        _one_of(name, raw, "direction", tuple(Direction), None),
        _effect(name, raw.get("minimal_effect")),
        source,
        _one_of(name, raw, "missing", missing, missing[0]),
        _one_of(name, raw, "repeated", _REPEATED[kind], _REPEATED[kind][0]),
        _quantile(name, kind, raw.get("quantile")),
    )


def value_of(metric: Metric, value: object) -> float:
    """A feedback's value as it is kept. Raises Invalid for one the metric cannot have."""
    least, most, allowed = _VALUES[metric.kind]
    if metric.kind is MetricKind.PROPORTION:
        if value in (0, 1):  # as True and False are
            return 1.0 if value else 0.0
    else:
        number = real(value)
        if number is not None and least <= number <= most:  # false for NaN
            return number
    raise Invalid(f"'{metric.name}' cannot be {value!r:.80}; give {allowed}", "value")


def real(value: object) -> float | None:
    """A JSON number; None for anything else, true and false among it."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if abs(value) < 2**1000 else math.inf


def _one_of(
    name: str, raw: Mapping[str, Any], key: str, allowed: tuple[C, ...], default: C | None
) -> C:
    value = raw.get(key)
    if value is None and default is not None:
        return default
    for one in allowed:
        if value == one.value:
            return one
    shown = " or ".join(f"'{one.value}'" for one in allowed)
    raise Invalid(f"metric '{name}': {key} cannot be {value!r:.80}; give {shown}", "metrics")


def _effect(name: str, value: object) -> float:
    number = real(value)
    if number is not None and 0 < number < math.inf:
        return number
    raise Invalid(
        f"metric '{name}': minimal_effect cannot be {value!r:.80}; give the smallest difference "
        "worth acting on, a number above 0",
        "metrics",
    )


def _quantile(name: str, kind: MetricKind, value: object) -> float | None:
    if kind is not MetricKind.QUANTILE:
        if value is None:
            return None
        raise Invalid(f"metric '{name}': a {kind.value} has no quantile; leave it out", "metrics")
    if isinstance(value, float) and 0 < value < 1:
        return value
    raise Invalid(
        f"metric '{name}': quantile cannot be {value!r:.80}; give e.g. 0.5, 0.95 or 0.99", "metrics"
    )

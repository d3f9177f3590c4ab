"""What a gateway counts of a model's features in a stretch of time: bounded, and mergeable. Pure.

A distribution is the same whichever way its parts were merged: its resolution depends on nothing
but the values in it.
"""

from collections.abc import Iterable
from typing import Literal

from msgspec import Struct

FeatureRole = Literal["input", "output", "label", "confidence"]

MOST_FEATURES = 64
"""Of one version; of a tensor with more elements in a row only its mean, standard deviation, least
and largest element are features."""

MOST_NAME = 120
"""Characters of a feature's name."""


class NumericCounts(Struct, frozen=True, array_like=True, tag="numeric"):
    """How many values lay in each bucket.

    A bucket holds 2**`shift` neighbouring float32 numbers. `counts`: for each bucket in which
    something is, in order, its distance from the one before (of the first: its number), then its
    count. `not_finite`: NaN and infinities.
    """

    shift: int = 0
    counts: tuple[int, ...] = ()
    not_finite: int = 0


class CategoryCounts(Struct, frozen=True, array_like=True, tag="category"):
    """How often each value came, in the order of values. `folded`: there were too many to be kept
    apart, so they are counted in 64 groups by their hash."""

    counts: dict[str, int] = {}
    folded: bool = False


Distribution = NumericCounts | CategoryCounts


class FeatureCounts(Struct, frozen=True, array_like=True):
    """A feature of a version: an element of an input or output ("x[3]"), a statistic of one
    ("image.mean[0]"), the label that a classifier gave, or its confidence in it."""

    name: str
    role: FeatureRole
    counts: Distribution


class VersionDrift(Struct, frozen=True, array_like=True):
    """What was counted of one version: `requests`, and of up to 8 rows of each the features.
    `left_out`: features beyond the most that are kept, never counted. `profile`: the text of the
    profile that the version came with, once, where it is wanted; "" otherwise."""

    model: str
    version: int
    requests: int
    features: tuple[FeatureCounts, ...]
    left_out: int = 0
    profile: str = ""


class DriftWindow(Struct, frozen=True, tag="drift"):
    """All that a gateway counted from `at` on, in seconds since the epoch, for `span_s`. `boot` is
    new with each start of it, which may split a window in two."""

    server: str
    boot: str
    at: int
    span_s: int
    rows: tuple[VersionDrift, ...]


class DriftStored(Struct, frozen=True, tag="drift_stored"):
    """The answer to a window: it is in the database, and need not be sent again."""

    at: int


class FeatureDrift(Struct, frozen=True, array_like=True):
    """A feature as metrics tell it. NaN where there is no such number."""

    feature: str
    psi: float
    ks: float
    drifted: bool


class VersionDriftScores(Struct, frozen=True, array_like=True):
    """What the control process found of one version. `state`: see `control.drift.verdict`."""

    model: str
    version: int
    state: str
    features: tuple[FeatureDrift, ...]


class DriftScores(Struct, frozen=True, tag="drift_scores"):
    """Of all models that are watched, for the gateways' metrics."""

    rows: tuple[VersionDriftScores, ...]


def by_name(features: Iterable[FeatureCounts]) -> dict[tuple[str, FeatureRole], FeatureCounts]:
    return {(one.name, one.role): one for one in features}

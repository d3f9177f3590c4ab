"""Drift as the control API tells it. Pure."""

from typing import Literal

import msgspec

from control.clock import Moment
from control.drift.comparison import Bin
from control.drift.points import FeatureRole
from control.drift.terms import ReferenceKind
from control.drift.verdict import DriftVerdict, FeatureDriftVerdict

DriftStateName = Literal["no_reference", "waiting", "stable", "drifted"]


class ReferenceView(msgspec.Struct, frozen=True):
    """What a model's versions are compared with: nothing yet; what `version` got from `since` until
    `until`; a profile that was sent; or the `drift_profile.json` that each version came with.
    `words` say it in a line."""

    kind: ReferenceKind = "none"
    version: int = 0
    since: Moment | None = None
    until: Moment | None = None
    words: str = "no reference is chosen"


class DriftBinView(msgspec.Struct, frozen=True):
    """A bar: from `low` to below `high` of numbers, null of names; shares of each side's values, 0
    to 1."""

    name: str
    low: float | None
    high: float | None
    reference: float
    current: float


class FeatureDriftView(msgspec.Struct, frozen=True):
    """A feature. `psi`: less what chance makes of it; `raw_psi` as it was; `ks`: null of names; `p`
    by Holm's correction over the version's features, null while nothing is said."""

    name: str
    role: FeatureRole
    state: DriftStateName
    words: str
    n_reference: int
    n_current: int
    psi: float | None
    raw_psi: float | None
    ks: float | None
    p: float | None
    bins: list[DriftBinView]


class VersionDriftView(msgspec.Struct, frozen=True):
    """The last verdict on a version, of what it got from `since` until `at`. `requests` were looked
    at; `left_out` features were not, beyond the 64 that are."""

    version: int
    state: DriftStateName
    words: str
    since: Moment
    at: Moment
    requests: int
    left_out: int
    features: list[FeatureDriftView]


class DriftWatchView(msgspec.Struct, frozen=True, kw_only=True):
    """A model that is watched, on which terms. `state`: the worst of its versions. `window`:
    seconds."""

    model: str
    percent: float
    per_second: float
    window: int
    psi: float
    ks: float
    alpha: float
    min_sample: int
    labels: str
    names: bool
    reference: ReferenceView
    state: DriftStateName
    words: str
    updated_at: Moment
    updated_by: str
    revision: int


class DriftReport(msgspec.Struct, frozen=True):
    """A model that is watched, and what was found of its versions, the newest first."""

    watch: DriftWatchView
    versions: list[VersionDriftView]


def feature_view(one: FeatureDriftVerdict) -> FeatureDriftView:
    found = one.comparison
    if found is None:
        return FeatureDriftView(
            one.name, one.role, one.state.value, one.words, 0, one.n_current, None, None, None,
            None, [],
        )  # fmt: skip
    return FeatureDriftView(
        name=one.name,
        role=one.role,
        state=one.state.value,
        words=one.words,
        n_reference=found.n_reference,
        n_current=found.n_current,
        psi=_round(found.psi),
        raw_psi=_round(found.raw_psi),
        ks=None if found.ks is None else _round(found.ks),
        p=None if one.p is None else _round(one.p),
        bins=[_bin(each, found.n_reference, found.n_current) for each in found.bins[:MOST_BINS]],
    )


MOST_BINS = 24
"""Shown of names: the most frequent."""


def _bin(one: Bin, n: int, m: int) -> DriftBinView:
    return DriftBinView(
        one.name, one.low, one.high, _round(one.reference / n), _round(one.current / m)
    )


def feature_views(verdict: DriftVerdict) -> list[FeatureDriftView]:
    return [feature_view(one) for one in verdict.features]


def _round(value: float) -> float:
    return float(f"{value:.4g}")

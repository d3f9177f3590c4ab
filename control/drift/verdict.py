"""Whether a version's features have drifted: each by its distance, under one error rate. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from control.drift.comparison import DriftComparison, compare
from control.drift.merge import observations
from control.drift.points import FeatureCounts, FeatureRole, VersionDrift, by_name
from control.drift.terms import LOOKS, DriftTerms, due_every_s
from control.statistics.holm import adjusted


class DriftState(StrEnum):
    """Of a feature, and of a version by its worst feature."""

    NO_REFERENCE = "no_reference"
    WAITING = "waiting"  # fewer values than the smallest sample
    STABLE = "stable"
    DRIFTED = "drifted"


@dataclass(frozen=True, slots=True)
class FeatureDriftVerdict:
    """`comparison` is None where there is nothing to compare; `p`: the smaller of its p-values, by
    Holm's correction. `words`: why it is in its state."""

    name: str
    role: FeatureRole
    state: DriftState
    words: str
    n_current: int
    comparison: DriftComparison | None = None
    p: float | None = None


@dataclass(frozen=True, slots=True)
class DriftVerdict:
    """Of one version; `features` with the most drifted first."""

    state: DriftState
    words: str
    features: tuple[FeatureDriftVerdict, ...]


NOT_CHOSEN = "no reference is chosen"


def judge_drift(
    reference: VersionDrift | None,
    current: VersionDrift,
    terms: DriftTerms,
    missing: str = NOT_CHOSEN,
) -> DriftVerdict:
    """Every feature of `current` against that of the same name and role of the reference;
    `missing`: why there is none."""
    if reference is None:
        features = tuple(_without_reference(one, missing) for one in current.features)
        return DriftVerdict(DriftState.NO_REFERENCE, missing, features)
    there = by_name(reference.features)
    compared = {
        key: compare(there[key].counts, one.counts)
        for key, one in by_name(current.features).items()
        if key in there
    }
    corrected = adjusted(_p_values(compared, terms))
    verdicts = [
        _verdict(one, compared.get((one.name, one.role)), corrected, terms)
        for one in current.features
    ]
    verdicts.sort(key=_by_drift)
    return DriftVerdict(*_of_all(verdicts, terms), tuple(verdicts))


_Key = tuple[str, FeatureRole]


def _p_values(
    compared: dict[_Key, DriftComparison | None], terms: DriftTerms
) -> dict[tuple[_Key, str], float]:
    """Of each test of each feature with enough values: so many may be wrong."""
    found: dict[tuple[_Key, str], float] = {}
    for key, one in compared.items():
        if one is None or min(one.n_reference, one.n_current) < terms.min_sample:
            continue
        found[key, "psi"] = one.psi_p
        if one.ks_p is not None:
            found[key, "ks"] = one.ks_p
    return found


def _verdict(
    feature: FeatureCounts,
    found: DriftComparison | None,
    corrected: dict[tuple[_Key, str], float],
    terms: DriftTerms,
) -> FeatureDriftVerdict:
    name, role, key = feature.name, feature.role, (feature.name, feature.role)
    n = observations(feature.counts)
    if found is None:
        words = "the reference has no such feature"
        return FeatureDriftVerdict(name, role, DriftState.NO_REFERENCE, words, n)
    psi_p = corrected.get((key, "psi"))
    if psi_p is None:
        words = (
            f"{found.n_current} values against {found.n_reference} of the reference; it takes "
            f"{terms.min_sample} of each"
        )
        return FeatureDriftVerdict(name, role, DriftState.WAITING, words, n, found)
    ks_p = corrected.get((key, "ks"), 1.0)
    by_psi = found.psi > terms.psi and psi_p <= terms.alpha
    by_ks = found.ks is not None and found.ks > terms.ks and ks_p <= terms.alpha
    state = DriftState.DRIFTED if by_psi or by_ks else DriftState.STABLE
    words = f"PSI {found.psi:.2f} (limit {terms.psi:g})"
    if found.ks is not None:
        words += f", KS {found.ks:.2f} (limit {terms.ks:g})"
    return FeatureDriftVerdict(name, role, state, words, n, found, min(psi_p, ks_p))


def _without_reference(feature: FeatureCounts, missing: str) -> FeatureDriftVerdict:
    n = observations(feature.counts)
    return FeatureDriftVerdict(feature.name, feature.role, DriftState.NO_REFERENCE, missing, n)


_ORDER = (DriftState.DRIFTED, DriftState.STABLE, DriftState.WAITING, DriftState.NO_REFERENCE)


def _by_drift(one: FeatureDriftVerdict) -> tuple[int, float, str]:
    return _ORDER.index(one.state), -(one.comparison.psi if one.comparison else 0.0), one.name


def _of_all(verdicts: Sequence[FeatureDriftVerdict], terms: DriftTerms) -> tuple[DriftState, str]:
    drifted = [one for one in verdicts if one.state is DriftState.DRIFTED]
    if drifted:
        worst = drifted[0]
        what = f"{len(drifted)} of {len(verdicts)} features have drifted"
        return DriftState.DRIFTED, f"{what}: {worst.name} the most, {worst.words}"
    judged = sum(one.state is DriftState.STABLE for one in verdicts)
    if judged:
        return DriftState.STABLE, f"none of {judged} features has drifted"
    if any(one.state is DriftState.WAITING for one in verdicts):
        words = f"fewer than {terms.min_sample} values of each feature, here or in the reference"
        return DriftState.WAITING, words
    if not verdicts:
        return DriftState.WAITING, "no request has been looked at"
    return DriftState.NO_REFERENCE, "the reference has none of the features"


@dataclass(frozen=True, slots=True)
class DriftAlarm:
    """Whether people have been told that a version has drifted; `clear`: how many verdicts in a row
    have said since that it has not."""

    raised: bool = False
    clear: int = 0


CALM_S = 300.0
"""An alarm is over no sooner, however short the window: a short one comes and goes."""


def next_alarm(alarm: DriftAlarm, state: DriftState, terms: DriftTerms) -> DriftAlarm:
    """Raised with the first verdict that says so; over after as many in a row that say the contrary
    as there are in a window, and in `CALM_S`. A verdict that says nothing changes nothing, but for
    one without a reference: then nothing can have drifted."""
    if state is DriftState.DRIFTED:
        return DriftAlarm(True)
    if not alarm.raised or state is DriftState.WAITING:
        return alarm
    clear = alarm.clear + 1
    over = clear >= max(LOOKS, CALM_S / due_every_s(terms)) or state is DriftState.NO_REFERENCE
    return DriftAlarm() if over else replace(alarm, clear=clear)

"""Whether features have drifted, and when people are told."""

import random

from control.drift.categories import category_counts
from control.drift.labels import compare_labels
from control.drift.numeric import counted
from control.drift.points import FeatureCounts, VersionDrift
from control.drift.terms import LOOKS, DriftTerms, due_every_s
from control.drift.verdict import CALM_S, DriftAlarm, DriftState, judge_drift, next_alarm

TERMS = DriftTerms(min_sample=200)


def version(n: int, *means: float, seed: int = 1) -> VersionDrift:
    drawn = random.Random(seed)
    features = tuple(
        FeatureCounts(f"x[{i}]", "input", counted([drawn.gauss(mean, 1) for _ in range(n)]))
        for i, mean in enumerate(means)
    )
    return VersionDrift("m", 1, n, features)


def test_without_a_reference_nothing_is_said() -> None:
    found = judge_drift(None, version(500, 0), TERMS)
    assert found.state is DriftState.NO_REFERENCE
    assert found.features[0].n_current == 500


def test_the_feature_that_moved_has_drifted_and_comes_first() -> None:
    found = judge_drift(version(1000, 0, 0, 0), version(1000, 0, 0, 1, seed=2), TERMS)
    assert found.state is DriftState.DRIFTED
    assert next(one.name for one in found.features) == "x[2]"
    assert [one.state for one in found.features][1:] == [DriftState.STABLE] * 2
    assert found.words.startswith("1 of 3 features have drifted: x[2] the most, PSI ")


def test_fewer_values_than_the_smallest_sample_wait() -> None:
    found = judge_drift(version(1000, 0), version(199, 3, seed=2), TERMS)
    assert found.state is DriftState.WAITING
    assert "it takes 200 of each" in found.features[0].words


def test_a_feature_the_reference_has_not_is_left_alone() -> None:
    found = judge_drift(version(1000, 0), version(1000, 0, 5, seed=2), TERMS)
    assert found.state is DriftState.STABLE
    assert found.features[-1].state is DriftState.NO_REFERENCE


def test_a_large_sample_with_a_small_shift_is_no_drift() -> None:
    """It is certain, and it is nothing."""
    found = judge_drift(version(20_000, 0), version(20_000, 0.1, seed=2), TERMS)
    assert found.features[0].p is not None
    assert found.features[0].p < 1e-6
    assert found.state is DriftState.STABLE


def test_an_alarm_is_raised_at_once_and_ends_after_a_whole_window() -> None:
    alarm = next_alarm(DriftAlarm(), DriftState.DRIFTED, TERMS)
    assert alarm.raised
    for _ in range(LOOKS - 1):
        alarm = next_alarm(alarm, DriftState.STABLE, TERMS)
        assert alarm.raised
    assert not next_alarm(alarm, DriftState.STABLE, TERMS).raised


def test_an_alarm_of_a_short_window_outlasts_its_windows() -> None:
    terms = DriftTerms(window_s=10)
    alarm, raised = DriftAlarm(), 0
    for look in range(int(CALM_S / due_every_s(terms))):
        before, state = alarm, DriftState.DRIFTED if look % 20 == 0 else DriftState.STABLE
        alarm = next_alarm(alarm, state, terms)
        raised += alarm.raised and not before.raised
    assert (alarm.raised, raised) == (True, 1)
    for _ in range(int(CALM_S / due_every_s(terms))):
        alarm = next_alarm(alarm, DriftState.STABLE, terms)
    assert not alarm.raised


def test_an_alarm_stays_while_nothing_can_be_said() -> None:
    alarm = DriftAlarm(True)
    for _ in range(20):
        alarm = next_alarm(alarm, DriftState.WAITING, TERMS)
    assert alarm.raised


def test_an_alarm_ends_with_its_reference() -> None:
    assert not next_alarm(DriftAlarm(True), DriftState.NO_REFERENCE, TERMS).raised


def labels(number: int, **counts: int) -> VersionDrift:
    of = FeatureCounts("label", "label", category_counts(counts))
    return VersionDrift("m", number, sum(counts.values()), (of,))


def test_labels_of_two_versions_are_compared() -> None:
    found = compare_labels(labels(1, cat=500, dog=500), labels(2, cat=100, dog=900)).found
    assert found is not None
    assert found.psi_lower > 0.3


def test_labels_that_are_not_there_are_named() -> None:
    found = compare_labels(labels(1, cat=5), VersionDrift("m", 2, 0, ()))
    assert found.found is None
    assert found.missing == "version 2 has given no label yet"

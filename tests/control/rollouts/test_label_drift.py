"""The guardrail `label_drift`: rollouts walked through the policy with labels of both versions."""

import random
from collections import Counter
from dataclasses import replace

from control.drift.categories import category_counts
from control.drift.labels import LabelComparison, compare_labels
from control.drift.points import FeatureCounts, VersionDrift
from control.rollouts.guardrails import GuardrailOutcome, VerdictOfGuardrail
from control.rollouts.plan import Guardrails
from control.rollouts.state import PauseReason, Phase, Transition
from support.rollout import COMPARED, Walk, arm

PLAN = replace(COMPARED, guardrails=Guardrails(window_s=10.0, label_psi=0.1, label_sample=500))


def labels(seed: int, n: int, cats: float, version: int = 1) -> VersionDrift:
    drawn = random.Random(seed)
    counts = Counter("cat" if drawn.random() < cats else "dog" for _ in range(n))
    return VersionDrift("m", version, n, (FeatureCounts("y", "label", category_counts(counts)),))


def both(n: int, stable: float = 0.5, candidate: float = 0.5, seed: int = 1) -> LabelComparison:
    return compare_labels(labels(seed, n, stable), labels(~seed, n, candidate, 2))


def walk_on(walk: Walk, looks: int = 40) -> None:
    for _ in range(looks):
        if walk.look(10, control=arm(100), candidate=arm(100)).transition is not None:
            return


def verdict(walk: Walk) -> VerdictOfGuardrail:
    return next(one for one in walk.last.verdicts if one.guardrail == "label_drift").view()


def test_equal_labels_let_the_rollout_go_on() -> None:
    walk = Walk(PLAN, labels=both(2_000)).to(Phase.STEP)
    walk_on(walk)
    assert walk.last.transition is Transition.PROMOTE


def test_labels_that_surely_differ_roll_back_and_say_so() -> None:
    walk = Walk(PLAN, labels=both(2_000)).to(Phase.STEP)
    walk.labels = both(2_000, candidate=0.8)
    walk_on(walk)
    assert walk.last.transition is Transition.ABORT
    assert walk.state.reason.startswith("rolled back: PSI of its labels against the stable")
    kept = verdict(walk)
    assert kept.outcome is GuardrailOutcome.FAIL
    assert kept.numbers["limit"] == 0.1
    assert kept.numbers["lower"] is not None
    assert kept.numbers["lower"] > 0.1


def test_too_few_labels_end_as_inconclusive() -> None:
    walk = Walk(PLAN, labels=both(2_000)).to(Phase.STEP)
    walk.labels = both(499, candidate=0.9)
    walk_on(walk, 200)
    assert (walk.state.phase, walk.state.pause) == (Phase.PAUSED, PauseReason.INCONCLUSIVE)
    assert "label_drift has not decided: 499 of at least 500 labels" in walk.state.reason


def test_a_psi_above_the_limit_that_could_be_either_is_inconclusive() -> None:
    walk = Walk(PLAN, labels=both(2_000)).to(Phase.STEP)
    walk.labels = both(600, candidate=0.66)
    assert walk.labels.found is not None
    assert walk.labels.found.psi > 0.1 > walk.labels.found.psi_lower
    walk_on(walk, 200)
    assert walk.state.pause is PauseReason.INCONCLUSIVE


def test_a_model_that_is_not_watched_is_named() -> None:
    walk = Walk(PLAN, labels=LabelComparison(None, "drift of m is not watched")).to(Phase.STEP)
    walk_on(walk, 200)
    assert "label_drift has not decided: drift of m is not watched" in walk.state.reason


def test_a_plan_that_does_not_ask_has_no_such_guardrail() -> None:
    walk = Walk(COMPARED, labels=both(2_000, candidate=0.9)).to(Phase.STEP)
    walk_on(walk)
    assert walk.last.transition is Transition.PROMOTE
    assert "label_drift" not in {one.guardrail for one in walk.last.verdicts}


def test_equal_versions_are_rolled_back_in_none_of_300_simulated_steps() -> None:
    """Ten looks at each while a thousand labels of each version come in."""
    for seed in range(1, 31):
        found = [both(n, 0.3, 0.3, seed) for n in range(100, 1_100, 100)]
        assert all(one.found is not None and one.found.psi_lower < 0.1 for one in found)

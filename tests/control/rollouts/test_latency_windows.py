"""Latencies compared window by window: what is slow, what is not, and what cannot be told."""

import math

import numpy as np
import pytest

from control.rollouts.arms import ArmTotals, OutcomeCounts, RolloutTotals
from control.rollouts.guardrails import (
    GuardrailOutcome,
    GuardrailVerdict,
    RolloutObservations,
    judge,
)
from control.rollouts.plan import Guardrails, RolloutPlan
from control.rollouts.state import GuardrailWindows, Phase, RolloutState
from control.rollouts.windows import COMPUTE, P95, P99, closed, estimate, opened, required
from control.statistics.histogram import Histogram
from control.statistics.sequential import Moments

PLAN = RolloutPlan(guardrails=Guardrails(window_s=1.0))


def histogram(seconds: np.ndarray) -> Histogram:
    made = Histogram()
    made.add_many(seconds)
    return made


def answers(
    draw: np.random.Generator, own_s: float, count: int = 60, noise_s: float = 0.0
) -> ArmTotals:
    """Each takes `own_s`, and what the machine adds to it, to its computing time and its queue."""
    own = own_s * np.exp(0.1 * draw.standard_normal(count))
    computed = own + draw.exponential(noise_s, count)
    taken = computed + draw.exponential(noise_s, count)
    return ArmTotals(OutcomeCounts(count), histogram(taken), histogram(computed))


def after(windows: int, slower: float, noise_s: float = 0.0) -> dict[str, GuardrailVerdict]:
    """The verdicts of a step after so many seconds."""
    draw, arms = np.random.default_rng(1), RolloutTotals()
    state = RolloutState(
        PLAN, phase=Phase.STEP, min_sample=200, windows=opened(arms, Phase.STEP, 0.0)
    )
    for second in range(1, windows + 1):
        loud = noise_s * math.exp(draw.standard_normal() / 2)
        arms = arms + RolloutTotals(
            answers(draw, 0.015, noise_s=loud), answers(draw, 0.015 * slower, noise_s=loud)
        )
        now = closed(state, arms, float(second))
        state = RolloutState(PLAN, phase=Phase.STEP, min_sample=200, windows=now)
    return {one.guardrail: one for one in judge(state, RolloutObservations(arms))}


@pytest.mark.parametrize(
    ("slower", "outcome"),
    [
        (1.0, GuardrailOutcome.OK),
        (1.25, GuardrailOutcome.PAUSE),
        (1.5, GuardrailOutcome.FAIL),
        (2.0, GuardrailOutcome.FAIL),
    ],
)
def test_on_a_quiet_machine_a_few_windows_decide(slower: float, outcome: GuardrailOutcome) -> None:
    found = after(12, slower)
    assert found["p95"].outcome is outcome
    assert found["compute"].outcome is outcome


def test_with_fewer_windows_than_the_plan_says_it_waits() -> None:
    found = after(4, 2.0)["p95"]
    assert found.holds
    assert found.words == "4 of at least 5 windows with 50 answers of each arm"


def test_noise_that_both_arms_share_hides_slowness_from_p95_and_not_from_computing_time() -> None:
    found = after(30, 2.0, noise_s=0.08)
    assert found["p95"].outcome is not GuardrailOutcome.FAIL
    assert found["p95"].numbers["ratio"] < PLAN.guardrails.latency_ratio
    assert found["compute"].outcome is GuardrailOutcome.FAIL
    assert found["compute"].numbers["ratio"] > 1.4


def test_what_could_be_either_waits_and_says_between_what_it_lies() -> None:
    found = after(6, 1.0, noise_s=0.08)["p95"]
    assert found.holds
    assert found.words.startswith("its p95 is ")
    assert "between" in found.words
    assert found.numbers["lower"] < 1.0 < found.numbers["limit"] < found.numbers["upper"]


def test_p99_is_not_required_of_a_small_sample_nor_anything_where_nobody_answers_beside() -> None:
    state = RolloutState(PLAN, phase=Phase.STEP, min_sample=999)
    assert required(state, RolloutTotals(), P95)
    assert not required(state, RolloutTotals(), P99)
    alone = RolloutState(PLAN, phase=Phase.PROMOTING, min_sample=9_999)
    assert not required(alone, RolloutTotals(), P95)


def test_a_gateway_that_counts_no_computing_time_is_not_waited_for() -> None:
    state = RolloutState(PLAN, phase=Phase.STEP, min_sample=200)
    told = answers(np.random.default_rng(1), 0.015)
    assert required(state, RolloutTotals(told), COMPUTE)
    assert not required(state, RolloutTotals(ArmTotals(told.counts, told.latency)), COMPUTE)


def test_an_arm_with_few_answers_does_not_look_quicker_for_it() -> None:
    """The 95th percentile of 50 answers is that of many at 94 %."""
    draw, arms, ratios = np.random.default_rng(1), RolloutTotals(), Moments()
    state = RolloutState(PLAN, phase=Phase.STEP, windows=opened(arms, Phase.STEP, 0.0))
    for second in range(1, 401):
        many, few = (histogram(0.02 * np.exp(draw.standard_normal(n))) for n in (5_000, 50))
        arms = arms + RolloutTotals(
            ArmTotals(OutcomeCounts(5_000), many), ArmTotals(OutcomeCounts(50), few)
        )
        windows = closed(state, arms, float(second))
        state = RolloutState(PLAN, phase=Phase.STEP, windows=windows)
        ratios = windows.latencies["p95"].ratios
    assert estimate(ratios).ratio == pytest.approx(1.0, abs=0.04)


def test_what_an_older_build_has_stored_begins_its_windows_anew() -> None:
    raw = GuardrailWindows().as_json()
    del raw["latencies"]
    old = {**raw, "p95": [0.0, [], [], 1, 1.3, 0.0], "p99": [0.0, [], [], 0, None, 0.0]}
    windows = GuardrailWindows.from_json(old)
    assert windows.latencies == {}
    state = RolloutState(PLAN, phase=Phase.STEP, windows=windows)
    assert set(closed(state, RolloutTotals(), 5.0).latencies) == {"compute", "p95", "p99"}


def test_windows_are_the_same_after_they_were_stored() -> None:
    draw = np.random.default_rng(1)
    arms = RolloutTotals(answers(draw, 0.01), answers(draw, 0.02))
    state = RolloutState(PLAN, phase=Phase.STEP, windows=opened(RolloutTotals(), Phase.STEP, 0.0))
    windows = closed(state, arms, 1.0)
    assert GuardrailWindows.from_json(windows.as_json()) == windows

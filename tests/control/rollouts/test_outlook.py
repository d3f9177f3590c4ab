"""What a plan can tell at the traffic that there is: said before anybody relies on it."""

import random

import pytest

from control.rollouts.arms import OutcomeCounts, Stratum, compared
from control.rollouts.guardrails import FAIL_ALPHA
from control.rollouts.outlook import RecentRequests, WatchedSignals, outlook, span
from control.rollouts.plan import RolloutPlan
from control.rollouts.plan_keys import parse_plan
from control.statistics.sequential import difference_of_rates

EXAMPLE = {"mirror": 0, "steps": "10,50", "hold": "20s", "min_sample": 200}
NOTHING = WatchedSignals()
RUNS = 100


def recent(per_s: float, error_rate: float = 0.0) -> RecentRequests:
    return RecentRequests(900.0, round(per_s * 900), round(per_s * 900 * error_rate))


def test_time_is_what_the_slowest_of_hold_sample_and_latency_takes() -> None:
    plan = parse_plan({**EXAMPLE, "window": "2s"})
    found = outlook(plan, recent(50.0), NOTHING)
    ten, half = found.steps
    assert (ten.name, ten.requests_per_s) == ("the step of 10 %", pytest.approx(5.0))
    assert ten.takes_s == pytest.approx(5 * 50 / 5.0)  # windows of 50 answers
    assert half.takes_s == pytest.approx(20.0)  # the hold
    assert found.takes_s == pytest.approx(50.0 + 20.0 + 20.0)
    assert found.words[0] == "at 50 requests/s it takes about 90 seconds if nothing is worse"


def test_without_traffic_no_time_is_told_but_that_nothing_is_promoted() -> None:
    found = outlook(parse_plan(EXAMPLE), recent(0.0), NOTHING)
    assert found.takes_s is None
    assert found.errors_points is None
    assert "without traffic nothing is promoted" in found.words[0]


def test_a_person_who_promotes_has_no_end_foretold() -> None:
    found = outlook(parse_plan({**EXAMPLE, "mode": "manual"}), recent(50.0), NOTHING)
    assert found.takes_s is None
    assert "beside what it waits for you at each step" in found.words[0]


@pytest.mark.parametrize(("per_s", "error_rate"), [(20, 0.001), (20, 0.05), (200, 0.02)])
def test_errors_that_are_said_to_be_noticed_are(per_s: float, error_rate: float) -> None:
    plan = parse_plan(EXAMPLE)
    found = outlook(plan, recent(per_s, error_rate), NOTHING)
    assert found.errors_points is not None
    steps = [(one.takes_s or 0.0) * per_s for one in found.steps]
    noticed = sum(
        _is_rolled_back(plan, steps, error_rate, found.errors_points / 100, random.Random(seed))
        for seed in range(RUNS)
    )
    assert noticed >= 0.85 * RUNS


def _is_rolled_back(
    plan: RolloutPlan, steps: list[float], base: float, more: float, chance: random.Random
) -> bool:
    """By the end of a step, with as many failures as chance has it."""
    strata: list[Stratum] = []
    for weight, n in zip((0.1, 0.5), steps, strict=True):
        counts = (
            OutcomeCounts(round(many), _binomial(chance, round(many), rate))
            for many, rate in ((n * weight, base + more), (n * (1 - weight), base))
        )
        strata.append(Stratum(*counts))
        found = compared(strata, "errors")
        assert found is not None
        bad_and_n = found.bad_candidate, found.n_candidate, found.bad_control, found.n_control
        if difference_of_rates(*bad_and_n, FAIL_ALPHA).lower > plan.guardrails.error_margin:
            return True
    return False


def _binomial(chance: random.Random, n: int, rate: float) -> int:
    return sum(chance.random() < rate for _ in range(n))


def test_a_better_plan_tells_smaller_differences() -> None:
    few = outlook(parse_plan(EXAMPLE), recent(50.0, 0.005), NOTHING)
    many = outlook(parse_plan({**EXAMPLE, "min_sample": 5000}), recent(50.0, 0.005), NOTHING)
    assert few.errors_points is not None
    assert many.errors_points is not None
    assert many.errors_points < few.errors_points
    assert "p99" in many.steps[0].latency
    assert "p99" not in few.steps[0].latency


def test_each_guardrail_that_cannot_judge_is_named() -> None:
    plan = parse_plan({**EXAMPLE, "min_sample": 100})
    cannot = " / ".join(outlook(plan, recent(1.0), NOTHING).cannot)
    for words in ("too few to compare latencies", "p99", "fast breaker", "memory", "label_drift"):
        assert words in cannot
    assert "no business metric" in cannot


def test_what_is_watched_is_not_missing() -> None:
    plan = parse_plan({**EXAMPLE, "memory_mib": 100, "label_drift": 0.2, "min_sample": 5000})
    assert outlook(plan, recent(500.0), WatchedSignals(labels=True, experiment=True)).cannot == ()
    (unwatched,) = outlook(plan, recent(500.0), WatchedSignals(experiment=True)).cannot
    assert "drift is not watched" in unwatched


def test_a_rollout_without_steps_compares_nothing() -> None:
    found = outlook(parse_plan(EXAMPLE), recent(50.0), NOTHING, "it was stable lately")
    assert found.steps == ()
    assert found.words == found.cannot
    assert "it was stable lately" in found.words[0]


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(1, "1 second"), (45, "45 seconds"), (900, "15 minutes"), (3600, "1 hour"),
     (9000, "2.5 hours"), (172_800, "2 days"), (3 * 10**7, "347 days")],
)  # fmt: skip
def test_times_are_told_as_people_say_them(seconds: float, words: str) -> None:
    assert span(seconds) == words

"""What rolls a candidate back, and what is no reason to."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from control.rollouts.commands import RolloutCommand
from control.rollouts.guardrails import Candidate, Harm
from control.rollouts.plan import RolloutStep
from control.rollouts.state import PauseReason, Phase, Transition
from support.rollout import PLAN, Walk, arm


def crash(walk: Walk) -> None:
    walk.candidate = Candidate(crashes=1)


def fail_to_load(walk: Walk) -> None:
    walk.candidate = Candidate(failed="srv-1: weights missing")


def grow(walk: Walk) -> None:
    walk.candidate = Candidate(memory_ratio=1.21)


def trip(walk: Walk) -> None:
    walk.arms = replace(walk.arms, **{walk.tried: getattr(walk.arms, walk.tried) + arm(20, 10)})


def fail_more_often(walk: Walk) -> None:
    bad = arm(2_000, 200)
    walk.look(1, control=arm(3_000, 30), **{walk.tried: bad})


def answer_nan(walk: Walk) -> None:
    walk.look(1, control=arm(2_000), **{walk.tried: arm(2_000, not_a_number=100)})


def answer_nothing(walk: Walk) -> None:
    walk.look(1, control=arm(2_000), **{walk.tried: arm(2_000, empty=100)})


def be_slow(walk: Walk) -> None:
    for _ in range(5):
        walk.look(10, control=arm(1_000), **{walk.tried: arm(1_000, ms=40)})


def do_harm(walk: Walk) -> None:
    walk.harms = (Harm("revenue", 0.01, 0.3),)


WHY = {
    crash: "its worker crashed once",
    fail_to_load: "it failed: srv-1: weights missing",
    grow: "memory is 1.21 × what is declared (limit 1.20)",
    trip: "10 of its last 20 requests failed",
    fail_more_often: "10.00 % of its requests failed, 1.00 % of the stable version's",
    answer_nan: "answers with NaN or infinity: 5.00 % of its requests",
    answer_nothing: "empty answers: 5.00 % of its requests",
    be_slow: "the computing time of its quickest tenth is 2.00 × the stable version's, between",
    do_harm: "revenue is worse by at least 0.01",
}


@pytest.mark.parametrize("paused", [False, True])
@pytest.mark.parametrize("phase", [Phase.MIRROR, Phase.STEP])
@pytest.mark.parametrize("worse", WHY, ids=lambda worse: worse.__name__)
def test_what_does_worse_is_rolled_back_in_one_change_of_the_weight(
    worse: Callable[[Walk], None], phase: Phase, paused: bool
) -> None:
    walk = Walk().to(phase)
    if paused:
        walk.obey(RolloutCommand.PAUSE)
    worse(walk)
    if walk.state.phase is not Phase.ABORTING:
        walk.look()
    assert walk.state.phase is Phase.ABORTING
    assert (walk.state.weight, walk.state.mirror) == (0, 0)
    assert WHY[worse] in walk.state.reason
    walk.look()
    assert walk.state.phase is Phase.DEGRADED
    assert WHY[worse] in walk.state.reason


@pytest.mark.parametrize("worse", [crash, fail_to_load, grow, trip], ids=lambda one: one.__name__)
def test_at_the_end_when_nothing_can_be_compared_any_more_it_is_still_rolled_back(
    worse: Callable[[Walk], None],
) -> None:
    walk = Walk().to(Phase.PROMOTING)
    worse(walk)
    assert walk.look().state.phase is Phase.ABORTING
    assert walk.state.weight == 0


def test_nineteen_requests_do_not_trip_the_breaker() -> None:
    walk = Walk().to(Phase.STEP)
    walk.look(1, candidate=arm(19, 19))
    assert walk.state.phase is Phase.STEP


def test_the_breaker_looks_at_the_last_window_alone() -> None:
    walk = Walk().to(Phase.STEP)
    for _ in range(30):
        walk.look(1, control=arm(1_000), candidate=arm(1_000))
    walk.look(10, control=arm(100), candidate=arm(100))
    walk.look(1, candidate=arm(20, 10))
    assert "10 of its last 20 requests failed" in walk.state.reason


def test_a_window_without_enough_answers_stays_open() -> None:
    walk = Walk().to(Phase.STEP)
    for _ in range(5):
        walk.look(10, control=arm(1_000), candidate=arm(9, ms=80))
    assert walk.state.phase is Phase.STEP
    assert all(one.last is None for one in walk.state.windows.latencies.values())


def test_probably_worse_pauses_and_better_again_goes_on() -> None:
    walk = Walk().to(Phase.STEP)
    walk.look(1, control=arm(100_000, 1_000), candidate=arm(4_000, 80))
    assert (walk.state.phase, walk.state.pause) == (Phase.PAUSED, PauseReason.SIGNAL)
    assert walk.state.weight == 100
    walk.look(1, control=arm(1_000, 10), candidate=arm(1_000, 10))
    assert walk.state.phase is Phase.PAUSED
    walk.look(1, control=arm(1_000, 10), candidate=arm(9_000, 50))
    assert walk.last.transition is Transition.RESUME


def test_who_resumes_a_signal_overrules_it_for_good() -> None:
    walk = Walk().to(Phase.STEP)
    walk.look(1, control=arm(100_000, 1_000), candidate=arm(4_000, 80))
    walk.obey(RolloutCommand.RESUME)
    walk.look(1)
    assert walk.state.phase is Phase.STEP
    assert walk.state.accepted == (PauseReason.SIGNAL,)


def test_a_bad_hour_that_hits_both_arms_alike_is_nobodys_fault() -> None:
    """It falls into the step with half of the traffic: adding up all steps would blame the
    candidate, of which most requests lie there."""
    walk = Walk(replace(PLAN, steps=(RolloutStep(100, 60, 100), RolloutStep(5_000, 600, 100)))).to(
        Phase.STEP
    )
    walk.look(60, control=arm(99_000, 99), candidate=arm(1_000, 1))
    assert walk.state.step == 1
    for _ in range(5):
        walk.look(60, control=arm(5_000, 250), candidate=arm(5_000, 250))
    assert walk.state.phase is Phase.STEP


def test_a_crash_of_an_earlier_try_does_not_count() -> None:
    walk = Walk().to(Phase.STEP)
    crash(walk)
    walk.look()
    walk.look()
    walk.obey(RolloutCommand.RETRY)
    assert walk.state.phase is Phase.PENDING
    walk.to(Phase.HEALTHY)


def test_what_has_ended_stays_whatever_is_seen() -> None:
    walk = Walk().to(Phase.HEALTHY)
    crash(walk)
    before = walk.state
    assert walk.look(10_000).transition is None
    assert walk.state is before

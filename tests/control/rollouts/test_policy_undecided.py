"""A phase is not left while a required guardrail has not decided: it waits, then it pauses."""

from dataclasses import replace

from control.rollouts.commands import RolloutCommand
from control.rollouts.guardrails import GuardrailOutcome
from control.rollouts.plan import Mode
from control.rollouts.state import PauseReason, Phase, Transition
from support.rollout import COMPARED, Walk, arm


def noisy(walk: Walk, looks: int, after_s: float = 10.0) -> None:
    """Windows in which one arm, then the other is slow: nothing can be told from them."""
    for number in range(looks):
        times = (10, 40) if number % 2 else (40, 10)
        control, candidate = (arm(100, ms=ms) for ms in times)
        walk.look(after_s, control=control, candidate=candidate)
        if walk.last.transition is not None:
            return


def test_a_step_waits_for_a_latency_that_could_be_either() -> None:
    walk = Walk(COMPARED).to(Phase.STEP)
    noisy(walk, 20)
    assert walk.state.phase is Phase.STEP
    assert walk.last.words.startswith("waits up to ")
    assert "compute has not decided: the computing time of its quickest tenth is" in walk.last.words


def test_it_pauses_as_inconclusive_and_names_the_guardrail() -> None:
    walk = Walk(COMPARED).to(Phase.STEP)
    noisy(walk, 200)
    assert (walk.state.phase, walk.state.pause) == (Phase.PAUSED, PauseReason.INCONCLUSIVE)
    assert walk.state.weight == 5_000
    assert walk.state.reason.startswith("paused (inconclusive): compute has not decided: ")
    assert walk.now - walk.state.since <= 60 + 300 + 20


def test_it_waits_as_long_again_as_the_phase_took_where_that_is_longer() -> None:
    walk = Walk(COMPARED).to(Phase.STEP)
    began = walk.now
    for _ in range(99):
        walk.look(10, control=arm(2), candidate=arm(2))
    noisy(walk, 400)
    assert walk.state.pause is PauseReason.INCONCLUSIVE
    assert walk.now - began >= 2 * 990


def test_it_resumes_by_itself_when_the_guardrail_decides() -> None:
    walk = Walk(COMPARED).to(Phase.STEP)
    noisy(walk, 200)
    for _ in range(3_000):
        walk.look(10, control=arm(100), candidate=arm(100))
        if walk.last.transition is not None:
            break
    assert walk.last.transition is Transition.RESUME
    assert walk.last.words == "every required guardrail has decided"
    assert walk.look(10, control=arm(100), candidate=arm(100)).transition is Transition.PROMOTE


def test_a_guardrail_that_fails_during_the_pause_rolls_back() -> None:
    walk = Walk(COMPARED).to(Phase.STEP)
    noisy(walk, 200)
    for _ in range(3_000):
        walk.look(10, control=arm(100), candidate=arm(100, ms=80))
        if walk.last.transition is not None:
            break
    assert walk.last.transition is Transition.ABORT


def test_who_resumes_overrules_the_guardrail_for_this_rollout() -> None:
    walk = Walk(COMPARED).to(Phase.STEP)
    noisy(walk, 200)
    walk.obey(RolloutCommand.RESUME)
    noisy(walk, 1)
    assert walk.last.transition is Transition.PROMOTE


def test_without_requests_while_it_waits_it_lacks_data() -> None:
    walk = Walk(replace(COMPARED, undecided_s=9_000.0)).to(Phase.STEP)
    noisy(walk, 20)
    walk.look(120)
    walk.look(120)
    assert walk.state.pause is PauseReason.NO_DATA


def test_a_manual_plan_waits_as_well() -> None:
    walk = Walk(replace(COMPARED, mode=Mode.MANUAL))
    walk.look()
    walk.look()
    walk.obey(RolloutCommand.PROMOTE)
    noisy(walk, 200)
    assert walk.state.pause is PauseReason.INCONCLUSIVE
    assert not walk.state.done


def test_errors_above_the_margin_hold_a_step_although_chance_may_explain_them() -> None:
    walk = Walk(replace(COMPARED, undecided_s=60.0)).to(Phase.STEP)
    for _ in range(6):
        walk.look(10, control=arm(100, 1), candidate=arm(100, 2))
    errors = next(one for one in walk.last.verdicts if one.guardrail == "errors")
    assert errors.outcome is GuardrailOutcome.WAITING
    assert "errors has not decided: 2.00 % of its requests failed" in walk.last.words

"""While the candidate has all traffic nobody answers beside it, and it is watched all the same."""

from dataclasses import replace

from control.rollouts.commands import RolloutCommand
from control.rollouts.state import Phase
from support.rollout import Walk, arm


def test_with_all_traffic_it_is_held_against_the_steps_before() -> None:
    """One in ten fails, which trips no breaker, and nobody answers beside it any more."""
    walk = Walk().to(Phase.PROMOTING)
    walk.look(10.0, candidate=arm(400, errors=40))
    assert walk.state.phase is Phase.ABORTING
    assert "of its requests failed" in walk.state.reason


def test_with_all_traffic_and_no_steps_before_nothing_is_made_up() -> None:
    walk = Walk().to(Phase.STEP)
    walk.obey(RolloutCommand.PROMOTE_FULL)
    walk.state = replace(
        walk.state, windows=replace(walk.state.windows, strata=()), min_sample=1_000
    )
    walk.look(1.0, candidate=arm(400, errors=40))
    assert walk.state.phase is Phase.PROMOTING


def test_errors_that_the_steps_left_open_hold_no_candidate_that_has_all_traffic() -> None:
    """Both fail alike; by chance the few answers of the stable version's last requests did not."""
    walk = Walk().to(Phase.STEP)
    for _ in range(40):
        if walk.state.place is Phase.PROMOTING:
            break
        walk.look(60.0, control=arm(300, errors=3), candidate=arm(300, errors=3))
    decision = walk.look(10.0, control=arm(40), candidate=arm(4_000, errors=40))
    errors = next(one for one in decision.verdicts if one.guardrail == "errors")
    assert errors.numbers["candidate"] - errors.numbers["control"] > errors.numbers["limit"]
    assert not errors.holds
    assert walk.state.phase is Phase.PROMOTING

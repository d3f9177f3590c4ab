"""The rollout machine: what moves it on, what holds it, and what takes the candidate back."""

from dataclasses import replace

import pytest

from control.errors import Conflict
from control.rollout_tables import ENDED_PHASES
from control.rollouts.commands import RolloutCommand
from control.rollouts.guardrails import Candidate, Harm
from control.rollouts.moves import SETTLE_S, supersede
from control.rollouts.plan import BUCKETS
from control.rollouts.state import ENDS, PauseReason, Phase, Transition, state_of
from support.rollout import IMMEDIATE, MANUAL, PLAN, Walk, arm


def test_a_candidate_like_the_stable_version_takes_over_step_by_step() -> None:
    walk = Walk()
    moves = []
    while not walk.state.ended:
        if transition := walk.healthy_step().transition:
            moves.append((str(transition), walk.state.weight, walk.state.mirror))
    assert moves == [
        ("prewarm", 0, 0),
        ("mirror", 0, 500),
        ("step", 100, 0),
        ("step", 5_000, 0),
        ("promote", BUCKETS, 0),
        ("healthy", BUCKETS, 0),
    ]


def test_without_a_mirror_the_first_step_follows_at_once() -> None:
    walk = Walk(PLAN.without_mirror())
    walk.look()
    assert walk.look().transition is Transition.STEP


def test_a_plan_without_steps_goes_from_the_mirror_to_everything() -> None:
    walk = Walk(replace(PLAN, steps=())).to(Phase.PROMOTING)
    assert walk.weights[-2:] == [0, BUCKETS]


@pytest.mark.parametrize("phase", [Phase.MIRROR, Phase.STEP, Phase.PROMOTING])
def test_a_phase_lasts_as_long_as_its_hold_however_many_requests_there_are(phase: Phase) -> None:
    walk = Walk().to(phase)
    walk.look(59, control=arm(9_000), **{walk.tried: arm(9_000)})
    assert walk.last.transition is None
    assert walk.last.words == "waits for 1 s"
    assert walk.look(1).transition is not None


@pytest.mark.parametrize("phase", [Phase.MIRROR, Phase.STEP, Phase.PROMOTING])
def test_a_phase_lasts_until_the_sample_is_there_however_long_it_takes(phase: Phase) -> None:
    walk = Walk().to(phase)
    for _ in range(33):
        walk.look(60, control=arm(50), **{walk.tried: arm(3)})
        assert walk.state.phase is phase, walk.state.reason
    assert walk.last.words == "waits for 1 more requests of each arm"
    assert walk.look(60, control=arm(1), **{walk.tried: arm(1)}).transition is not None


def test_both_arms_must_have_the_sample() -> None:
    walk = Walk().to(Phase.STEP)
    walk.look(60, control=arm(99), candidate=arm(9_000))
    assert "1 more requests" in walk.last.words


def test_copies_do_not_count_for_the_steps() -> None:
    walk = Walk().to(Phase.STEP)
    walk.look(60, control=arm(500), mirrored=arm(500))
    assert "100 more requests" in walk.last.words


@pytest.mark.parametrize("phase", [Phase.MIRROR, Phase.STEP, Phase.PROMOTING])
def test_without_traffic_nothing_is_promoted_and_the_rollout_pauses(phase: Phase) -> None:
    walk = Walk().to(phase)
    weight = walk.state.weight
    for _ in range(50):
        walk.look(60)
    assert (walk.state.phase, walk.state.pause) == (Phase.PAUSED, PauseReason.NO_DATA)
    assert walk.state.weight == weight
    assert walk.state.reason == "paused (no_data): no request of both arms in 120 s, 0 before"


def test_a_rollout_that_lacked_traffic_goes_on_when_it_comes_back() -> None:
    walk = Walk().to(Phase.STEP)
    walk.look(120)
    assert walk.state.pause is PauseReason.NO_DATA
    walk.look(5, control=arm(5), candidate=arm(5))
    assert walk.last.transition is Transition.RESUME
    assert walk.state.phase is Phase.STEP


def test_traffic_of_the_stable_arm_alone_is_no_data() -> None:
    walk = Walk().to(Phase.STEP)
    walk.look(120, control=arm(5_000))
    assert walk.state.pause is PauseReason.NO_DATA


def test_counts_that_cannot_be_read_four_times_pause_the_rollout() -> None:
    walk = Walk().to(Phase.STEP)
    walk.readable = False
    unread = [walk.look(10).transition for _ in range(4)]
    assert unread == [None, None, None, Transition.PAUSE]
    assert walk.state.pause is PauseReason.METRIC_ERROR
    assert "4 times in a row: db2 is silent" in walk.state.reason


def test_readings_that_fail_within_ten_seconds_count_once() -> None:
    walk = Walk().to(Phase.STEP)
    walk.readable = False
    for _ in range(30):
        walk.look(1)
    assert walk.state.phase is Phase.STEP


def test_one_good_reading_forgets_the_failed_ones() -> None:
    walk = Walk().to(Phase.STEP)
    for readable in (False, False, False, True, False, False, False):
        walk.readable = readable
        walk.look(10)
    assert walk.state.phase is Phase.STEP


def test_a_rollout_whose_counts_could_not_be_read_goes_on_when_they_can() -> None:
    walk = Walk().to(Phase.STEP)
    walk.readable = False
    for _ in range(5):
        walk.look(10)
    walk.readable = True
    assert walk.look(10).transition is Transition.RESUME


NAN = float("nan")


@pytest.mark.parametrize("harm", [(NAN, 1.0), (-1.0, NAN)])
def test_a_metric_that_is_no_number_pauses_at_the_end_of_the_step(
    harm: tuple[float, float],
) -> None:
    walk = Walk().to(Phase.STEP)
    walk.harms = (Harm("revenue", *harm),)
    assert walk.look(30, control=arm(300), candidate=arm(300)).transition is None
    walk.look(30)
    assert walk.state.pause is PauseReason.INCONCLUSIVE
    walk.harms = (Harm("revenue", -0.1, 0.1),)
    assert walk.look(1).transition is Transition.RESUME


def test_units_in_the_wrong_arms_pause_the_rollout_until_a_person_overrules_it() -> None:
    walk = Walk().to(Phase.STEP)
    walk.mismatch = "52 % of the units instead of 50 %"
    assert walk.look().state.pause is PauseReason.SRM
    for _ in range(5):
        walk.healthy_step()
    assert walk.state.phase is Phase.PAUSED
    walk.obey(RolloutCommand.RESUME)
    walk.to(Phase.HEALTHY)


def test_the_candidate_must_be_ready_on_every_server() -> None:
    walk = Walk(candidate=Candidate(missing=("srv-1", "srv-2")))
    walk.look()
    walk.look(299)
    assert walk.state.phase is Phase.PREWARM
    assert walk.last.words == "it is not ready on srv-1, srv-2"
    walk.look(1)
    assert walk.state.phase is Phase.ABORTING
    assert walk.state.reason == "rolled back: after 300 s it is not ready on srv-1, srv-2"


def test_a_server_that_joins_and_still_loads_holds_the_step() -> None:
    walk = Walk().to(Phase.STEP)
    walk.candidate = Candidate(missing=("srv-3",))
    walk.healthy_step()
    assert walk.last.words == "waits for the candidate to be ready on srv-3"
    walk.candidate = Candidate()
    assert walk.look().transition is Transition.STEP


def test_counts_of_an_earlier_try_do_not_count() -> None:
    walk = Walk().to(Phase.STEP)
    walk.look(1, control=arm(5_000), candidate=arm(5_000, 4_000))
    walk.look()
    walk.obey(RolloutCommand.RETRY)
    walk.to(Phase.HEALTHY)


@pytest.mark.parametrize("readable", [True, False])
def test_the_first_version_skips_the_steps_and_needs_no_counts(readable: bool) -> None:
    walk = Walk(shortcut="it is the first version", readable=readable)
    moves = [walk.look().transition for _ in range(3)]
    assert moves == [Transition.PREWARM, Transition.PROMOTE, Transition.HEALTHY]
    assert walk.weights == [0, BUCKETS, BUCKETS]


def test_immediate_takes_everything_as_soon_as_it_is_ready() -> None:
    walk = Walk(IMMEDIATE, candidate=Candidate(missing=("srv-1",)))
    walk.look()
    assert walk.look(5).transition is None
    walk.candidate = Candidate()
    assert walk.look(1).transition is Transition.PROMOTE
    assert walk.state.reason == "all traffic to the candidate at once: the plan's mode is immediate"


def test_an_immediate_candidate_that_cannot_be_loaded_never_has_traffic() -> None:
    walk = Walk(IMMEDIATE, candidate=Candidate(failed="srv-1: no such file"))
    walk.look()
    walk.look()
    walk.look()
    assert walk.state.phase is Phase.DEGRADED
    assert set(walk.weights) == {0}


def test_by_hand_every_step_waits_for_a_person() -> None:
    walk = Walk(MANUAL)
    seen = []
    for _ in range(4):
        while walk.healthy_step().transition is not Transition.PAUSE:
            pass
        for _ in range(3):
            walk.healthy_step()
        assert (walk.state.phase, walk.state.pause) == (Phase.PAUSED, PauseReason.MANUAL)
        seen.append((walk.state.weight, walk.state.mirror))
        walk.obey(RolloutCommand.PROMOTE)
    assert seen == [(0, 0), (0, 500), (100, 0), (5_000, 0)]
    assert walk.to(Phase.HEALTHY).state.weight == BUCKETS


def test_aborting_waits_for_what_was_accepted_but_not_for_ever() -> None:
    walk = Walk().to(Phase.STEP)
    walk.obey(RolloutCommand.ABORT)
    walk.candidate = Candidate(in_flight=3)
    assert walk.look(1).words == "draining 3 requests in flight"
    assert walk.look(SETTLE_S).transition is Transition.DEGRADE


def test_a_pause_does_not_count_as_part_of_the_hold() -> None:
    walk = Walk().to(Phase.STEP)
    walk.look(30, control=arm(500), candidate=arm(500))
    walk.obey(RolloutCommand.PAUSE)
    walk.look(3_600)
    walk.obey(RolloutCommand.RESUME)
    assert walk.look(29).words == "waits for 1 s"
    assert walk.look(1).transition is Transition.STEP


def test_a_persons_pause_is_for_a_person_to_end() -> None:
    walk = Walk().to(Phase.STEP)
    walk.look(120)
    assert walk.state.pause is PauseReason.NO_DATA
    walk.obey(RolloutCommand.PAUSE)
    walk.healthy_step()
    assert walk.state.pause is PauseReason.MANUAL


@pytest.mark.parametrize(
    ("phase", "step", "weight"),
    [
        (Phase.MIRROR, 0, 100),
        (Phase.STEP, 1, 5_000),
        (Phase.PROMOTING, 1, BUCKETS),
    ],
)
def test_promote_skips_to_the_next_step(phase: Phase, step: int, weight: int) -> None:
    walk = Walk().to(phase)
    walk.obey(RolloutCommand.PROMOTE)
    assert (walk.state.step, walk.state.weight) == (step, weight)
    assert walk.state.phase is (Phase.HEALTHY if phase is Phase.PROMOTING else Phase.STEP)
    assert walk.state.reason.endswith("(user:ada)")


@pytest.mark.parametrize("phase", [Phase.MIRROR, Phase.STEP, Phase.PROMOTING])
def test_promote_full_skips_everything_without_a_single_request(phase: Phase) -> None:
    walk = Walk().to(phase)
    walk.obey(RolloutCommand.PROMOTE_FULL)
    walk.look()
    assert (walk.state.phase, walk.state.weight) == (Phase.HEALTHY, BUCKETS)


@pytest.mark.parametrize("phase", [Phase.PENDING, Phase.PREWARM, Phase.MIRROR, Phase.PROMOTING])
def test_a_newer_candidate_supersedes_at_any_time(phase: Phase) -> None:
    walk = Walk().to(phase)
    decision = supersede(walk.state, "version 3 of m", walk.now)
    assert decision.state.phase is Phase.SUPERSEDED
    assert (decision.state.weight, decision.state.mirror) == (0, 0)
    assert decision.words == "superseded by version 3 of m"


IMPOSSIBLE = [
    (Phase.PENDING, RolloutCommand.PAUSE, "about to start"),
    (Phase.PENDING, RolloutCommand.PROMOTE, "not ready on every server yet"),
    (Phase.PREWARM, RolloutCommand.PROMOTE_FULL, "not ready on every server yet"),
    (Phase.STEP, RolloutCommand.RESUME, "is not paused but in phase step"),
    (Phase.STEP, RolloutCommand.RETRY, "only one that was rolled back can be retried"),
    (Phase.HEALTHY, RolloutCommand.ABORT, "the rollout is healthy: it has ended"),
    (Phase.HEALTHY, RolloutCommand.RETRY, "only one that was rolled back can be retried"),
]


@pytest.mark.parametrize(("phase", "command", "why"), IMPOSSIBLE)
def test_what_is_impossible_is_refused_and_says_why(
    phase: Phase, command: RolloutCommand, why: str
) -> None:
    walk = Walk(candidate=Candidate(missing=("srv-1",)) if phase is Phase.PREWARM else Candidate())
    walk.to(phase)
    before = walk.state
    with pytest.raises(Conflict, match=why):
        walk.obey(command)
    assert walk.state is before


def test_what_was_rolled_back_can_only_be_retried() -> None:
    walk = Walk().to(Phase.STEP)
    walk.obey(RolloutCommand.ABORT)
    walk.look()
    for command in set(RolloutCommand) - {RolloutCommand.RETRY}:
        with pytest.raises(Conflict, match="only retry is possible"):
            walk.obey(command)


def test_resuming_what_waits_to_be_promoted_is_refused() -> None:
    walk = Walk(MANUAL).to(Phase.PAUSED)
    with pytest.raises(Conflict, match="promote or abort it"):
        walk.obey(RolloutCommand.RESUME)


@pytest.mark.parametrize("phase", [phase for phase in Phase if phase is not Phase.SUPERSEDED])
def test_a_state_read_back_from_json_is_the_same(phase: Phase) -> None:
    walk = Walk()
    if phase in (Phase.ABORTING, Phase.DEGRADED):
        walk.to(Phase.STEP)
        walk.obey(RolloutCommand.ABORT)
    elif phase is Phase.PAUSED:
        walk.to(Phase.STEP).obey(RolloutCommand.PAUSE)
    walk.to(phase)
    again = state_of(PLAN.as_json(), walk.state.as_json())
    assert again == walk.state
    assert again.as_json() == walk.state.as_json()


def test_the_table_of_rollouts_knows_the_phases_that_are_ends() -> None:
    assert tuple(ENDS) == ENDED_PHASES

"""The rollout machine: what moves it on, what holds it, and what takes the candidate back."""

from collections.abc import Callable
from dataclasses import replace

import pytest

from control.errors import Conflict
from control.rollout_tables import ENDED_PHASES
from control.rollouts.commands import RolloutCommand
from control.rollouts.guardrails import Candidate, Harm
from control.rollouts.moves import SETTLE_S, supersede
from control.rollouts.plan import BUCKETS, RolloutStep
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
    for _ in range(3):
        walk.look(10, control=arm(1_000), **{walk.tried: arm(1_000, ms=40)})


def do_harm(walk: Walk) -> None:
    walk.harms = (Harm("revenue", 0.01, 0.3),)


WHY = {
    crash: "its worker crashed once",
    fail_to_load: "it failed: srv-1: weights missing",
    grow: "memory is 1.21 × what is declared (limit 1.20)",
    trip: "10 of its last 20 requests failed",
    fail_more_often: "10.00% of its requests failed, 1.00% of the stable version's",
    answer_nan: "answers with NaN or infinity: 5.00% of its requests",
    answer_nothing: "empty answers: 5.00% of its requests",
    be_slow: "p95 was 2.00 × the stable version's; above 1.25 × in 3 windows in a row",
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


def test_two_slow_windows_and_a_good_one_are_no_reason_to_take_it_back() -> None:
    walk = Walk().to(Phase.STEP)
    for _ in range(5):
        for ms in (40, 40, 20):
            walk.look(10, control=arm(1_000), candidate=arm(1_000, ms=ms))
    assert walk.state.phase is Phase.PAUSED  # but to pause: it is slower on the whole


def test_a_step_does_not_end_on_a_slow_window() -> None:
    """Or a plan with short steps would promote what is slow in each of them."""
    walk = Walk().to(Phase.STEP)
    walk.look(60, control=arm(240), candidate=arm(240, ms=26))
    assert walk.last.words == "waits for another latency window, for the last one was slow"
    walk.look(10, control=arm(240), candidate=arm(240, ms=20))
    assert walk.last.transition is Transition.STEP


def test_a_window_without_enough_answers_stays_open() -> None:
    walk = Walk().to(Phase.STEP)
    for _ in range(5):
        walk.look(10, control=arm(1_000), candidate=arm(39, ms=80))
    assert walk.state.phase is Phase.STEP
    assert walk.state.windows.p95.ratio is None


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


def test_a_crash_of_an_earlier_try_does_not_count() -> None:
    walk = Walk().to(Phase.STEP)
    crash(walk)
    walk.look()
    walk.look()
    walk.obey(RolloutCommand.RETRY)
    assert walk.state.phase is Phase.PENDING
    walk.to(Phase.HEALTHY)


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


def test_what_has_ended_stays_whatever_is_seen() -> None:
    walk = Walk().to(Phase.HEALTHY)
    crash(walk)
    before = walk.state
    assert walk.look(10_000).transition is None
    assert walk.state is before


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

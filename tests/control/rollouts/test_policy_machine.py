"""Whatever happens in whatever order, a rollout keeps its promises."""

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from control.errors import Conflict
from control.rollouts.commands import RolloutCommand
from control.rollouts.guardrails import Candidate, GuardrailOutcome
from control.rollouts.plan import BUCKETS, Mode
from control.rollouts.state import ENDS, PauseReason, Phase, Transition, state_of
from support.rollout import COMPARED, IMMEDIATE, MANUAL, PLAN, Walk, arm

PROMOTE = Transition.PROMOTE
LADDER = (0, 100, 5_000, BUCKETS)


class Rollouts(RuleBasedStateMachine):
    """A person, traffic, servers and time do what they like."""

    def __init__(self) -> None:
        super().__init__()
        self.walk = Walk()

    @rule(plan=st.sampled_from([PLAN, MANUAL, IMMEDIATE, PLAN.without_mirror(), COMPARED]))
    @precondition(lambda self: self.walk.state.phase is Phase.PENDING)
    def begin(self, plan: object) -> None:
        self.walk = Walk(plan)  # type: ignore[arg-type]

    @rule(
        after_s=st.sampled_from([0, 1, 10, 61, 400]),
        control=st.sampled_from([0, 3, 150]),
        tried=st.sampled_from([0, 3, 150]),
        worse=st.sampled_from([0.0, 0.0, 0.0, 0.02, 0.9]),
    )
    def look(self, after_s: float, control: int, tried: int, worse: float) -> None:
        before = self.walk.state
        arms = {"control": arm(control), self.walk.tried: arm(tried, int(tried * worse))}
        decision = self.walk.look(after_s, **arms)
        self._check(before, decision.transition)
        failed = [one for one in decision.verdicts if one.outcome is GuardrailOutcome.FAIL]
        assert not failed or decision.transition is Transition.ABORT
        if before.phase is Phase.STEP and decision.transition in (Transition.STEP, PROMOTE):
            overruled = PauseReason.INCONCLUSIVE in before.accepted
            assert overruled or not any(one.holds for one in decision.verdicts)

    @rule(command=st.sampled_from(RolloutCommand))
    def obey(self, command: RolloutCommand) -> None:
        before = self.walk.state
        try:
            decision = self.walk.obey(command)
        except Conflict:
            assert self.walk.state is before
            return
        assert before.phase is not Phase.HEALTHY
        assert before.phase is not Phase.SUPERSEDED
        if command is RolloutCommand.PAUSE:
            assert (decision.state.weight, decision.state.mirror) == (before.weight, before.mirror)

    @rule(
        missing=st.sampled_from([(), (), ("srv-2",)]),
        failed=st.sampled_from(["", "", "", "", "no such file"]),
        readable=st.booleans(),
    )
    def servers(self, missing: tuple[str, ...], failed: str, readable: bool) -> None:
        self.walk.candidate = Candidate(missing, failed)
        self.walk.readable = readable

    @rule()
    def restart(self) -> None:
        """The controller dies, and another one reads the row."""
        state = self.walk.state
        again = state_of(state.plan.as_json(), state.as_json())
        assert again == state
        self.walk.state = again

    @invariant()
    def weights_are_those_of_the_plan(self) -> None:
        state = self.walk.state
        assert state.weight in LADDER
        assert state.mirror in (0, 500)
        assert not (state.weight and state.mirror)

    @invariant()
    def what_was_rolled_back_has_no_traffic(self) -> None:
        state = self.walk.state
        if state.phase in (Phase.PENDING, Phase.PREWARM, Phase.ABORTING, Phase.DEGRADED):
            assert (state.weight, state.mirror) == (0, 0)

    @invariant()
    def a_pause_has_its_reason_and_nothing_else_has_one(self) -> None:
        state = self.walk.state
        assert (state.phase is Phase.PAUSED) == (state.pause is not None)
        assert (state.phase is Phase.PAUSED) == (state.interrupts is not None)
        assert state.reason or state.phase is Phase.PENDING

    def _check(self, before: object, transition: Transition | None) -> None:
        state = self.walk.state
        assert isinstance(before, type(state))
        if transition in (None, Transition.PAUSE, Transition.RESUME, Transition.HEALTHY):
            assert (state.weight, state.mirror) == (before.weight, before.mirror)
        if before.phase in ENDS:
            assert transition is None
        if state.weight > before.weight:
            assert before.phase is not Phase.PAUSED
            plan = before.plan
            ladder = (0, *(step.weight for step in plan.steps), plan.last.weight)
            one_step = ladder.index(state.weight) == ladder.index(before.weight) + 1
            assert one_step or plan.mode is Mode.IMMEDIATE
            if before.phase in (Phase.MIRROR, Phase.STEP):
                self._check_earned(before)

    def _check_earned(self, before: object) -> None:
        """Time, traffic, and a candidate that is ready."""
        walk = self.walk
        assert isinstance(before, type(walk.state))
        assert walk.now >= before.deadline
        seen = walk.arms.since(before.windows.base)
        arm_of = seen.mirrored if before.phase is Phase.MIRROR else seen.candidate
        assert min(arm_of.counts.requests, seen.control.counts.requests) >= before.min_sample
        assert walk.readable
        assert not walk.candidate.missing
        assert before.plan.mode is not Mode.MANUAL


TestRollouts = Rollouts.TestCase
TestRollouts.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)

"""A rollout walked by hand through the real policy: traffic and time are arguments."""

from dataclasses import dataclass, field, replace

from control.drift.labels import LabelComparison
from control.rollouts.arms import ArmTotals, OutcomeCounts, RolloutTotals
from control.rollouts.commands import RolloutCommand, obey
from control.rollouts.guardrails import Candidate, Harm, RolloutObservations
from control.rollouts.moves import RolloutDecision
from control.rollouts.plan import BUCKETS, Guardrails, Mode, RolloutPlan, RolloutStep
from control.rollouts.policy import decide
from control.rollouts.state import Phase, RolloutState
from control.statistics.histogram import Histogram

PLAN = RolloutPlan(
    mirror=RolloutStep(500, 60, 100),
    steps=(RolloutStep(100, 60, 100), RolloutStep(5_000, 60, 100)),
    last=RolloutStep(BUCKETS, 60, 100),
    no_data_s=120.0,
    prewarm_s=300.0,
    guardrails=Guardrails(window_s=10.0),
)
COMPARED = replace(PLAN, mirror=None, steps=(RolloutStep(5_000, 60, 200),), undecided_s=300.0)
"""Its one step is not left before computing time and p95 were compared."""

MANUAL = replace(PLAN, mode=Mode.MANUAL)
IMMEDIATE = replace(PLAN, mode=Mode.IMMEDIATE)


def arm(requests: int, errors: int = 0, ms: float = 20.0, **counts: int) -> ArmTotals:
    """Half of the answers take `ms`, one in ten twice as long, the rest less."""
    latency = Histogram()
    answered = requests - errors
    for share, times in ((5, 1.0), (1, 2.0), (4, 0.7)):
        latency.add(ms * times / 1000, answered * share // 10)
    latency.add(ms / 1000, answered - latency.n)
    return ArmTotals(OutcomeCounts(requests, errors, **counts), latency, latency)


@dataclass(slots=True)
class Walk:
    """The rollout stands at `state`; each look is kept in `last`."""

    plan: RolloutPlan = PLAN
    shortcut: str = ""
    now: float = 1_000.0
    arms: RolloutTotals = field(default_factory=RolloutTotals)
    candidate: Candidate = field(default_factory=Candidate)
    readable: bool = True
    mismatch: str = ""
    harms: tuple[Harm, ...] = ()
    labels: LabelComparison | None = None
    state: RolloutState = field(init=False)
    last: RolloutDecision = field(init=False)
    weights: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.state = RolloutState(self.plan, self.shortcut)

    def look(self, after_s: float = 0.0, **answered: ArmTotals) -> RolloutDecision:
        """Time passes, these arms answer more, and one decision is made."""
        self.now += after_s
        self.arms = self.arms + RolloutTotals(**answered)
        arms = self.arms if self.readable else None
        seen = RolloutObservations(
            arms, self.candidate, "db2 is silent", self.mismatch, self.harms, self.labels
        )
        return self._took(decide(self.state, seen, self.now))

    def obey(self, command: RolloutCommand) -> RolloutDecision:
        return self._took(obey(self.state, command, self.arms, "user:ada", self.now))

    def to(self, phase: Phase, step: int = -1) -> "Walk":
        """On with healthy traffic until the rollout is there."""
        for _ in range(40):
            if self.state.phase is phase and self.state.step >= step:
                return self
            self.healthy_step()
        raise AssertionError(f"it never came to {phase}, step {step}: {self.state.reason}")

    def healthy_step(self, after_s: float = 60.0) -> RolloutDecision:
        """Enough time and traffic for any phase."""
        if self.state.place in (Phase.PENDING, Phase.PREWARM):
            return self.look()
        return self.look(after_s, control=arm(300), **{self.tried: arm(300)})

    @property
    def tried(self) -> str:
        return "mirrored" if self.state.place is Phase.MIRROR else "candidate"

    def _took(self, decision: RolloutDecision) -> RolloutDecision:
        self.state, self.last = decision.state, decision
        self.weights.append(self.state.weight)
        return decision

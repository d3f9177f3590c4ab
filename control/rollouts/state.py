"""Where a rollout stands, as one frozen value with its deadlines, so that a restart changes
nothing. Pure.

PENDING ─▶ PREWARM ─▶ [MIRROR] ─▶ STEP(i) ─▶ PROMOTING ─▶ HEALTHY
              └──────────┴───────────┴────────────┴─▶ ABORTING ─▶ DEGRADED ─ retry ─▶ PENDING
PREWARM, MIRROR, STEP and PROMOTING ⇄ PAUSED(reason); what has not ended may be SUPERSEDED.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

from control.rollouts.arms import OutcomeCounts, RolloutTotals, Stratum
from control.rollouts.plan import RolloutPlan
from control.rollouts.plan_keys import stored_plan
from control.statistics.histogram import Histogram
from control.statistics.sequential import Moments


class Phase(StrEnum):
    PENDING = "pending"
    PREWARM = "prewarm"  # being loaded, with no traffic
    MIRROR = "mirror"  # answers copies nobody waits for
    STEP = "step"
    PAUSED = "paused"  # the weight stays as it is, and the guardrails go on
    PROMOTING = "promoting"  # has all traffic and is watched a last time
    HEALTHY = "healthy"  # is the stable version now
    ABORTING = "aborting"  # has no traffic any more; what it has accepted is finished
    DEGRADED = "degraded"  # was taken back
    SUPERSEDED = "superseded"  # a newer candidate took its place


ENDS = (Phase.HEALTHY, Phase.DEGRADED, Phase.SUPERSEDED)


class PauseReason(StrEnum):
    MANUAL = "manual"
    INCONCLUSIVE = "inconclusive"  # a required guardrail could not decide, or has no number
    NO_DATA = "no_data"
    SRM = "srm"  # the arms did not get the units they were meant to get
    SIGNAL = "signal"  # probably worse, but not by the margin
    METRIC_ERROR = "metric_error"  # the counts cannot be read


class Transition(StrEnum):
    """What happens to a rollout; the events are called "rollout.<transition>"."""

    START = "start"
    PREWARM = "prewarm"
    MIRROR = "mirror"
    STEP = "step"
    PAUSE = "pause"
    RESUME = "resume"
    PROMOTE = "promote"
    HEALTHY = "healthy"
    ABORT = "abort"
    DEGRADE = "degrade"
    SUPERSEDE = "supersede"
    RETRY = "retry"


@dataclass(frozen=True, slots=True)
class LatencyWindow:
    """What is remembered of one quantile: both arms' histograms where the open window began, the
    logarithms of candidate over control of the closed ones, and the last of them as a ratio."""

    since: float
    control: Histogram = field(default_factory=Histogram, compare=False)
    candidate: Histogram = field(default_factory=Histogram, compare=False)
    ratios: Moments = field(default_factory=Moments)
    last: float | None = None

    def as_list(self) -> list[Any]:
        ratios = [self.ratios.n, self.ratios.mean, self.ratios.m2]
        return [self.since, self.control.as_list(), self.candidate.as_list(), ratios, self.last]

    @classmethod
    def from_list(cls, packed: list[Any]) -> "LatencyWindow":
        since, control, candidate, ratios, last = packed
        arms = Histogram.from_list(control), Histogram.from_list(candidate)
        return cls(since, *arms, Moments(*ratios), last)


@dataclass(frozen=True, slots=True)
class GuardrailWindows:
    """What the guardrails remember: the counts where the phase began (`base`), the ended steps
    (`strata`), the windows of each of `control.rollouts.windows.LATENCIES`, and the candidate's
    counts where the fast breaker's window began."""

    base: RolloutTotals = field(default_factory=RolloutTotals)
    strata: tuple[Stratum, ...] = ()
    latencies: Mapping[str, LatencyWindow] = field(default_factory=dict)
    recent_since: float = 0.0
    recent: OutcomeCounts = field(default_factory=OutcomeCounts)

    def as_json(self) -> dict[str, Any]:
        return {
            "base": self.base.as_list(),
            "strata": [[one.candidate.as_list(), one.control.as_list()] for one in self.strata],
            "latencies": {name: one.as_list() for name, one in self.latencies.items()},
            "recent": [self.recent_since, *self.recent.as_list()],
        }

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> "GuardrailWindows":
        """An older build remembered latencies otherwise; then they begin anew."""
        since, *recent = raw["recent"]
        latencies = raw.get("latencies", {}).items()
        return cls(
            RolloutTotals.from_list(raw["base"]),
            tuple(Stratum(OutcomeCounts(*a), OutcomeCounts(*b)) for a, b in raw["strata"]),
            {name: LatencyWindow.from_list(packed) for name, packed in latencies},
            since,
            OutcomeCounts(*recent),
        )


@dataclass(frozen=True, slots=True)
class RolloutState:
    """Moments are seconds since the epoch.

    `shortcut`: why there are no steps, "" if there are; `rollback`: who goes back to the candidate
    and why, "" for any other rollout. `step` counts from 0, -1 before the first; `weight` and
    `mirror` are buckets. A pause remembers the phase it interrupts, and `done` that
    this phase only waits for a person. `deadline`: when the hold is over, or PREWARM or ABORTING
    is at the latest; `min_sample` is what the phase needs. `data_requests` and `data_until` watch
    for traffic; `unread` counts failed readings in a row, the last at `unread_at`.
    `undecided_at`: since when only the decision of a guardrail is missing, 0 where it is not.
    `crashes` of the candidate were there before; `accepted` are reasons that a person overruled.
    `began_at`: when it was started, or retried last; 0 of a rollout that an older build started.
    """

    plan: RolloutPlan
    shortcut: str = ""
    rollback: str = ""
    phase: Phase = Phase.PENDING
    step: int = -1
    weight: int = 0
    mirror: int = 0
    reason: str = ""
    pause: PauseReason | None = None
    interrupts: Phase | None = None
    done: bool = False
    since: float = 0.0
    began_at: float = 0.0
    paused_at: float = 0.0
    deadline: float = 0.0
    min_sample: int = 0
    data_requests: int = 0
    data_until: float = 0.0
    unread: int = 0
    unread_at: float = 0.0
    undecided_at: float = 0.0
    crashes: int = 0
    accepted: tuple[PauseReason, ...] = ()
    windows: GuardrailWindows = field(default_factory=GuardrailWindows)

    @property
    def ended(self) -> bool:
        return self.phase in ENDS

    @property
    def place(self) -> Phase:
        """The phase, or the one that a pause interrupts."""
        return self.interrupts or self.phase

    def as_json(self) -> dict[str, Any]:
        """All but the plan, which has a column of its own."""
        plain = {name: getattr(self, name) for name in _PLAIN}
        return {**plain, "accepted": list(self.accepted), "windows": self.windows.as_json()}


def state_of(plan: dict[str, Any], raw: dict[str, Any]) -> RolloutState:
    """From a plan and a state in JSON; what a later build has added is left out."""
    made = RolloutState(stored_plan(plan), **{name: raw[name] for name in _PLAIN if name in raw})
    return replace(
        made,
        phase=Phase(made.phase),
        pause=PauseReason(made.pause) if made.pause else None,
        interrupts=Phase(made.interrupts) if made.interrupts else None,
        accepted=tuple(PauseReason(one) for one in raw.get("accepted", ())),
        windows=GuardrailWindows.from_json(raw["windows"]),
    )


_PLAIN = tuple(
    name
    for name in RolloutState.__dataclass_fields__
    if name not in ("plan", "accepted", "windows")
)

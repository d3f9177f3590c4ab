"""Rollouts as everybody but the tables sees them."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from control.clock import text_of
from control.rollout_tables import Rollout
from control.rollouts.arms import ArmTotals, RolloutTotals
from control.rollouts.guardrails import GuardrailVerdict
from control.rollouts.plan import RolloutPlan, percent
from control.rollouts.state import ENDS, PauseReason, Phase, state_of
from control.rollouts.windows import latency_gaps


@dataclass(frozen=True, slots=True)
class RolloutView:
    """`weight` and `mirror` in percent of the name's traffic; `step` counts from 1, 0 before the
    first. `until`: when the hold of the phase is over, None where there is none. `revision` is for
    compare-and-set. `gaps`: where latencies are not compared, in words."""

    id: str
    name: str
    model: str
    stable: int | None
    candidate: int
    plan: RolloutPlan
    phase: Phase
    pause: PauseReason | None
    done: bool
    step: int
    steps: int
    weight: float
    mirror: float
    reason: str
    until: datetime | None
    salt: str
    by: str
    created_at: datetime
    updated_at: datetime
    finished_at: datetime | None
    revision: int
    gaps: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        plain = (
            "id name model stable candidate done step steps weight mirror reason salt by revision"
        )
        moments = ("until", "created_at", "updated_at", "finished_at")
        return {
            **{name: getattr(self, name) for name in plain.split()},
            "plan": self.plan.as_json(),
            "phase": str(self.phase),
            "pause": None if self.pause is None else str(self.pause),
            "gaps": list(self.gaps),
            **{name: _moment(getattr(self, name)) for name in moments},
        }


@dataclass(frozen=True, slots=True)
class Standing:
    """How a rollout does at this moment. `words`: what it does or waits for; `arms`: what was
    answered since its phase began; `problem`: why some of that is missing, "" if nothing is."""

    words: str
    verdicts: tuple[GuardrailVerdict, ...]
    arms: RolloutTotals
    problem: str

    def as_json(self) -> dict[str, Any]:
        return {
            "words": self.words,
            "verdicts": [verdict.as_json() for verdict in self.verdicts],
            "arms": {
                "stable": _arm(self.arms.control),
                "candidate": _arm(self.arms.candidate),
                "mirrored": _arm(self.arms.mirrored),
            },
            "problem": self.problem,
        }


def view_of(row: Rollout) -> RolloutView:
    state = state_of(row.plan, row.state)
    held = state.phase not in (*ENDS, Phase.PENDING, Phase.PAUSED)
    return RolloutView(
        id=row.id,
        name=row.name,
        model=row.model,
        stable=row.stable,
        candidate=row.candidate,
        plan=state.plan,
        phase=state.phase,
        pause=state.pause,
        done=state.done,
        step=state.step + 1,
        steps=len(state.plan.steps),
        weight=percent(state.weight),
        mirror=percent(state.mirror),
        reason=state.reason,
        until=datetime.fromtimestamp(state.deadline, UTC) if held else None,
        salt=row.salt,
        by=row.by,
        created_at=row.created_at,
        updated_at=row.updated_at,
        finished_at=row.finished_at,
        revision=row.revision,
        gaps=latency_gaps(state.plan),
    )


def _arm(arm: ArmTotals) -> Mapping[str, float | None]:
    counts = arm.counts
    known = arm.latency.n > 0
    return {
        "requests": counts.requests,
        "errors": counts.errors,
        "not_a_number": counts.not_a_number,
        "empty": counts.empty,
        **{f"p{q}_s": arm.latency.quantile(q / 100) if known else None for q in (50, 95, 99)},
    }


def _moment(moment: datetime | None) -> str | None:
    return None if moment is None else text_of(moment)

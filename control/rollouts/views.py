"""Rollouts as everybody but the tables sees them. Pure."""

from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from control.clock import Moment
from control.rollouts.arms import ArmTotals, RolloutTotals
from control.rollouts.guardrails import VerdictOfGuardrail
from control.rollouts.plan import PlanView, percent
from control.rollouts.state import ENDS, PauseReason, Phase, state_of
from control.rollouts.windows import latency_gaps

if TYPE_CHECKING:  # the command line decodes these views without the database's library
    from control.rollout_tables import Rollout


class RolloutView(msgspec.Struct, frozen=True, kw_only=True):
    """`weight` and `mirror` in percent of the name's traffic; `step` counts from 1, 0 before the
    first. `until`: when the hold of the phase is over, None where there is none. `revision` is for
    compare-and-set. `gaps`: where latencies are not compared, in words. `rollback`: who goes back
    to the candidate and why, "" for any other rollout."""

    id: str
    name: str
    model: str
    stable: int | None
    candidate: int
    done: bool
    step: int
    steps: int
    weight: float
    mirror: float
    reason: str
    salt: str
    by: str
    revision: int
    plan: PlanView
    phase: Phase
    pause: PauseReason | None
    gaps: tuple[str, ...]
    until: Moment | None
    created_at: Moment
    updated_at: Moment
    finished_at: Moment | None
    rollback: str = ""


class OutcomesOfArm(msgspec.Struct, frozen=True):
    """What an arm has answered; latencies in seconds."""

    requests: int
    errors: int
    not_a_number: int
    empty: int
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None


class OutcomesOfArms(msgspec.Struct, frozen=True):
    """Of a rollout; `mirrored`: of copies the candidate got."""

    stable: OutcomesOfArm
    candidate: OutcomesOfArm
    mirrored: OutcomesOfArm


class Standing(msgspec.Struct, frozen=True):
    """How a rollout does at this moment, or did when it was decided. `words`: what it does or waits
    for; `arms`: what was answered since its phase began; `problem`: why some of that is missing, ""
    if nothing is; `decided_at`: of one that has ended, the moment that all of this is of."""

    words: str
    verdicts: tuple[VerdictOfGuardrail, ...]
    arms: OutcomesOfArms
    problem: str
    decided_at: Moment | None = None


def view_of(row: "Rollout") -> RolloutView:
    state = state_of(row.plan, row.state)
    held = state.phase not in (*ENDS, Phase.PENDING, Phase.PAUSED)
    return RolloutView(
        id=row.id,
        name=row.name,
        model=row.model,
        stable=row.stable,
        candidate=row.candidate,
        done=state.done,
        step=state.step + 1,
        steps=len(state.plan.steps),
        weight=percent(state.weight),
        mirror=percent(state.mirror),
        reason=state.reason,
        salt=row.salt,
        by=row.by,
        revision=row.revision,
        plan=state.plan.view(),
        phase=state.phase,
        pause=state.pause,
        gaps=latency_gaps(state.plan),
        until=datetime.fromtimestamp(state.deadline, UTC) if held else None,
        created_at=row.created_at,
        updated_at=row.updated_at,
        finished_at=row.finished_at,
        rollback=state.rollback,
    )


def outcomes_of(totals: RolloutTotals) -> OutcomesOfArms:
    return OutcomesOfArms(*map(_arm, (totals.control, totals.candidate, totals.mirrored)))


def _arm(arm: ArmTotals) -> OutcomesOfArm:
    counts, known = arm.counts, arm.latency.n > 0
    return OutcomesOfArm(
        counts.requests,
        counts.errors,
        counts.not_a_number,
        counts.empty,
        *(arm.latency.quantile(q / 100) if known else None for q in (50, 95, 99)),
    )

"""Rollouts as rows: begun, told what to do, and moved on; each move is one transaction.

It has the state, the route's weights, the event and the audit row together, under the fence of
whoever holds the lease, so that a crash at any moment leaves weights and state as they belong.
"""

import secrets
from dataclasses import dataclass
from typing import Any, Protocol

from sqlalchemy import select
from sqlalchemy.orm import Session

from control import crash
from control.clock import new_id
from control.errors import Conflict, Invalid, LostLease
from control.rollout_tables import Rollout
from control.rollouts import counts, evidence, facts, moves
from control.rollouts.commands import RolloutCommand, obey
from control.rollouts.facts import NO_SIGNALS, Signals
from control.rollouts.history import rolled_back
from control.rollouts.moves import RolloutDecision
from control.rollouts.plan import RolloutPlan, percent
from control.rollouts.policy import decide
from control.rollouts.queries import find, stable_before
from control.rollouts.state import ENDS, Phase, RolloutState, Transition, state_of
from control.rollouts.views import RolloutView, view_of
from control.sql.database import Transaction, expect_revision
from control.text import stored, stored_json

LONGEST_REASON = 2_000


@dataclass(frozen=True, slots=True)
class WeightRequest:
    """What a rollout asks of its name's route. `weight` and `mirror` are buckets of 10,000 that
    `candidate` gets, None when `stable` has all for good; `stable` is None before the first."""

    model: str
    stable: int | None
    candidate: int | None
    weight: int
    mirror: int
    salt: str


class RouteWriter(Protocol):
    """The routes, as rollouts change them. Blocks; raises ControlError, and then nothing of the
    transaction is kept."""

    def set_weights(self, tx: Transaction, name: str, weights: WeightRequest) -> None:
        """Within `tx`: the name's traffic is to be split so, on every server, in one swap."""


@dataclass(frozen=True, slots=True)
class CandidateRequest:
    """A candidate for a name's traffic; `stable` is the version that has it, None for none. While
    another rollout of the name is under way, that one's stable version counts instead."""

    name: str
    model: str
    candidate: int
    stable: int | None


@dataclass(frozen=True, slots=True)
class TickResult:
    """`moved`: tick again at once, for there may be more to do."""

    view: RolloutView
    moved: bool


def start(
    tx: Transaction,
    routes: RouteWriter,
    wish: CandidateRequest,
    plan: RolloutPlan,
    rollback: str = "",
) -> RolloutView:
    """Begin; one under way for another candidate is superseded. The same again is that rollout.
    `rollback`: who goes back to the candidate and why, "" for what is no rollback.

    Raises Conflict when the candidate is the stable version already, or another model's rollout of
    the name is under way.
    """
    tx.alone()
    old = _under_way(tx.session, wish.name)
    if old is not None and (old.model, old.candidate) == (wish.model, wish.candidate):
        return view_of(old)
    stable = wish.stable if old is None else old.stable
    _check_wish(wish, stable, old)
    if old is not None:
        by = f"version {wish.candidate}"
        _apply(tx, routes, old, moves.supersede(_state(old), by, tx.now.timestamp()))
    shortcut = "" if rollback else _shortcut(tx.session, wish, stable, plan)
    row = _new_row(tx, wish, plan, stable)
    words = f"version {wish.candidate} is the candidate" + (f": {shortcut}" if shortcut else "")
    if rollback:
        words = f"back from version {stable} to version {wish.candidate}, {rollback}"
    now = tx.now.timestamp()
    state = RolloutState(plan, shortcut, rollback, reason=words, since=now, began_at=now)
    _apply(tx, routes, row, RolloutDecision(state, Transition.START, words))
    return view_of(row)


def command(
    tx: Transaction,
    routes: RouteWriter,
    rollout_id: str,
    wanted: RolloutCommand | str,
    expected: int | None = None,
) -> RolloutView:
    """Do what the transaction's actor wants, at once. Raises NotFound, Invalid for no command,
    Conflict saying what is possible, Stale when its revision is not `expected`."""
    if wanted not in tuple(RolloutCommand):
        raise Invalid(
            f"'{wanted:.80}' is no command; commands are {', '.join(RolloutCommand)}", "command"
        )
    tx.alone()
    row = find(tx.session, rollout_id)
    expect_revision(row.revision, expected, f"the rollout of '{row.name}'")
    order = RolloutCommand(wanted)
    if order is RolloutCommand.RETRY:
        _check_retry(tx.session, row)
        row.salt = secrets.token_hex(8)
    arms = counts.read(tx.session, row.id, (), tx.now).arms
    decision = obey(_state(row), order, arms, tx.actor.principal, tx.now.timestamp())
    _apply(tx, routes, row, decision)
    return view_of(row)


def call_off(tx: Transaction, routes: RouteWriter, rollout_id: str, why: str) -> RolloutView:
    """Take it back and be done with it, in this transaction; nothing for one that has ended. What
    the candidate has accepted is answered all the same: its version drains. Raises NotFound."""
    tx.alone()
    row, now = find(tx.session, rollout_id), tx.now.timestamp()
    if _state(row).ended:
        return view_of(row)
    if row.phase != Phase.ABORTING:
        _apply(tx, routes, row, moves.abort(_state(row), why, now))
    _apply(tx, routes, row, moves.degrade(_state(row), now))
    return view_of(row)


def tick(
    tx: Transaction, routes: RouteWriter, rollout_id: str, signals: Signals = NO_SIGNALS
) -> TickResult:
    """Look once, and make one move if it is time. To be repeated every second or so by whoever
    holds the lease, in a transaction with its fence; doing so too often changes nothing.

    Raises NotFound, and LostLease when a newer holder has moved the rollout already.
    """
    tx.alone()
    row = find(tx.session, rollout_id)
    state = _state(row)
    if state.ended:
        return TickResult(view_of(row), moved=False)
    found = facts.seen(tx.session, row, tx.now, signals)
    decision = decide(state, found, tx.now.timestamp())
    if decision.transition is not None or decision.state != state:
        _apply(tx, routes, row, decision)
    if decision.transition is None:
        evidence.note(tx, row, state, decision)
    return TickResult(view_of(row), decision.transition is not None)


def _check_wish(wish: CandidateRequest, stable: int | None, old: Rollout | None) -> None:
    if old is not None and old.model != wish.model:
        raise Conflict(
            f"a rollout of the model '{old.model}' is under way for '{wish.name}'; abort it first"
        )
    if stable == wish.candidate:
        instead = "roll out another" if old is None else f"abort the rollout of {old.candidate}"
        raise Conflict(f"'{wish.name}' is served by version {stable} already; {instead}")


def _under_way(session: Session, name: str) -> Rollout | None:
    rows = select(Rollout).where(Rollout.name == name, Rollout.phase.not_in(ENDS))
    return session.scalars(rows).one_or_none()


def _shortcut(
    session: Session, wish: CandidateRequest, stable: int | None, plan: RolloutPlan
) -> str:
    """Why there are no steps, "" if there are."""
    if stable is None:
        return "it is the first version"
    before = stable_before(session, wish.name, plan.rollback_window)
    lost = [one.version for one in rolled_back(session, wish.name)]
    if wish.candidate in before and wish.candidate not in lost:
        return f"it was stable before, within the last {plan.rollback_window}"
    return ""


def _new_row(
    tx: Transaction, wish: CandidateRequest, plan: RolloutPlan, stable: int | None
) -> Rollout:
    row = Rollout(
        id=new_id(tx.now),
        name=wish.name,
        model=wish.model,
        stable=stable,
        candidate=wish.candidate,
        plan=plan.as_json(),
        salt=secrets.token_hex(8),
        by=tx.actor.principal,
        fence=0,
        revision=0,
        created_at=tx.now,
    )
    tx.session.add(row)
    return row


def _check_retry(session: Session, row: Rollout) -> None:
    newer = select(Rollout.candidate).where(Rollout.name == row.name, Rollout.id > row.id)
    if (candidate := session.scalar(newer.limit(1))) is not None:
        raise Conflict(
            f"version {candidate} of '{row.name}' has been rolled out since; begin a new rollout "
            f"of version {row.candidate} instead"
        )


def _apply(tx: Transaction, routes: RouteWriter, row: Rollout, decision: RolloutDecision) -> None:
    """Everything a decision means, in the transaction at hand."""
    _hold_fence(tx, row)
    began = decision.transition is Transition.START
    before, state = (None, decision.state) if began else (_facts(row), _state(row))
    _keep(row, decision.state)
    row.updated_at = tx.now
    if decision.transition is None:
        return
    row.revision += 1
    row.finished_at = tx.now if decision.state.ended else None
    tx.session.flush()
    evidence.note(tx, row, state, decision)
    if _changes_weights(decision.transition):
        routes.set_weights(tx, row.name, _weights(row, decision.state))
    verdicts = stored_json([verdict.view() for verdict in decision.verdicts])
    tx.changed(
        f"rollout.{decision.transition}",
        f"rollout:{row.id}",
        before,
        _facts(row),
        name=row.name,
        model=row.model,
        words=decision.words,
        rollback=decision.state.rollback,
        verdicts=verdicts,
    )
    tx.desire()
    crash.point(f"rollout.{decision.transition}")


def _hold_fence(tx: Transaction, row: Rollout) -> None:
    number = tx.fence.number if tx.fence else 0
    if number and row.fence > number:
        raise LostLease(f"the rollout of '{row.name}' was moved by a newer holder than {number}")
    row.fence = max(row.fence, number)


def _keep(row: Rollout, state: RolloutState) -> None:
    row.state = state.as_json()
    row.phase, row.step = state.phase, state.step
    row.weight, row.mirror = state.weight, state.mirror
    row.reason = stored(state.reason, LONGEST_REASON)


_WITHOUT_WEIGHTS = (Transition.PAUSE, Transition.RESUME)


def _changes_weights(transition: Transition) -> bool:
    return transition not in _WITHOUT_WEIGHTS


def _weights(row: Rollout, state: RolloutState) -> WeightRequest:
    if state.phase is Phase.HEALTHY:
        return WeightRequest(row.model, row.candidate, None, 0, 0, row.salt)
    out = state.phase in (Phase.SUPERSEDED, Phase.DEGRADED)
    candidate = None if out else row.candidate
    return WeightRequest(row.model, row.stable, candidate, state.weight, state.mirror, row.salt)


def _facts(row: Rollout) -> dict[str, Any]:
    return {
        "name": row.name,
        "candidate": row.candidate,
        "stable": row.stable,
        "phase": str(row.phase),
        "step": row.step + 1,
        "weight": percent(row.weight),
        "mirror": percent(row.mirror),
        "reason": row.reason,
    }


def _state(row: Rollout) -> RolloutState:
    return state_of(row.plan, row.state)

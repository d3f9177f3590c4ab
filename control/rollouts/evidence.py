"""What was seen of a rollout and when: its moments are kept with it, for its page after the end.

A moment is kept at each move and, between them, every two seconds at first and less often the
longer ago it was started or retried: some hundred in an hour, a thousand in a month.
"""

import zlib
from datetime import datetime, timedelta

import msgspec
from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from control.clock import Moment
from control.rollout_tables import Rollout, RolloutMomentRow
from control.rollouts import facts
from control.rollouts.arms import RolloutTotals
from control.rollouts.counts import KEEP_DAYS, read
from control.rollouts.guardrails import VerdictOfGuardrail, judge
from control.rollouts.moves import RolloutDecision
from control.rollouts.plan import percent
from control.rollouts.state import Phase, RolloutState
from control.rollouts.views import OutcomesOfArms, outcomes_of
from control.sql.database import Transaction

EVERY_S, OF_ITS_AGE = 2.0, 0.01
"""Between two moments: so long, or this part of what it has lasted since its last start."""

MOST_MOMENTS, MOST_SHOWN = 5_000, 120
"""Kept of one rollout, moves aside, then the oldest go; and shown at once."""


class RolloutMoment(msgspec.Struct, frozen=True):
    """How a rollout stood. `phase` and `weight` (in percent) before the `move` that was made then,
    "" for none; `words` say why. `arms`: what was answered since the phase began."""

    at: Moment
    phase: Phase
    step: int
    weight: float
    mirror: float
    move: str
    words: str
    arms: OutcomesOfArms
    verdicts: tuple[VerdictOfGuardrail, ...]


class RolloutEvidence(msgspec.Struct, frozen=True):
    """The moments of a rollout, oldest first: all moves, and of the others as many as are shown."""

    moments: tuple[RolloutMoment, ...]


_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder(RolloutMoment)


def note(tx: Transaction, row: Rollout, before: RolloutState, decision: RolloutDecision) -> None:
    """Keep this moment, if a move is made or the last one is old. `before`: the state that was
    decided about, whose row may have changed already."""
    move = decision.transition
    if move is None and not _due(tx, row, before):
        return
    arms = read(tx.session, row.id, (), tx.now).arms
    verdicts = decision.verdicts
    if not verdicts and before.place in (Phase.MIRROR, Phase.STEP, Phase.PROMOTING):
        verdicts = judge(before, facts.seen(tx.session, row, tx.now))
    moment = RolloutMoment(
        tx.now,
        before.phase,
        before.step + 1,
        percent(before.weight),
        percent(before.mirror),
        "" if move is None else str(move),
        decision.words,
        _outcomes(before, arms),
        tuple(one.view() for one in verdicts),
    )
    last = _last(tx.session, row.id)
    number = 0 if last is None else last.number + 1
    payload = zlib.compress(_encoder.encode(moment), 1)
    made = RolloutMomentRow(
        rollout_id=row.id, number=number, at=tx.now, moved=move is not None, payload=payload
    )
    tx.session.add(made)
    tx.session.flush()
    if number >= MOST_MOMENTS:
        _forget_oldest(tx.session, row.id)


def evidence_of(session: Session, rollout_id: str) -> RolloutEvidence:
    """The moves, and some of the moments between them."""
    mine = RolloutMomentRow.rollout_id == rollout_id
    kept = select(RolloutMomentRow.number, RolloutMomentRow.moved).where(mine)
    rows = session.execute(kept.order_by(RolloutMomentRow.number)).all()
    moves = [number for number, moved in rows if moved]
    others = [number for number, moved in rows if not moved]
    stride = -(-len(others) // MOST_SHOWN) or 1
    chosen = [*moves[-MOST_SHOWN:], *others[::-1][::stride]]
    wanted = select(RolloutMomentRow.payload).where(mine, RolloutMomentRow.number.in_(chosen))
    payloads = session.scalars(wanted.order_by(RolloutMomentRow.number))
    return RolloutEvidence(tuple(map(_unpacked, payloads)))


def decisive_moment(session: Session, rollout_id: str) -> RolloutMoment | None:
    """The one at which the last thing was decided about it: the move out of its last phase."""
    mine = RolloutMomentRow.rollout_id == rollout_id
    moves = select(RolloutMomentRow.payload).where(mine, RolloutMomentRow.moved)
    for payload in session.scalars(moves.order_by(RolloutMomentRow.number.desc()).limit(20)):
        moment = _unpacked(payload)
        if moment.verdicts:
            return moment
    return None


def forget_moments(tx: Transaction, keep_days: int = KEEP_DAYS) -> None:
    """Remove those of rollouts that ended longer ago, in which their counts are forgotten too."""
    ended = select(Rollout.id).where(Rollout.finished_at < tx.now - timedelta(days=keep_days))
    tx.session.execute(delete(RolloutMomentRow).where(RolloutMomentRow.rollout_id.in_(ended)))


def _due(tx: Transaction, row: Rollout, state: RolloutState) -> bool:
    last = _last(tx.session, row.id)
    if last is None:
        return True
    age_s = tx.now.timestamp() - (state.began_at or row.created_at.timestamp())
    return _seconds(last.at, tx.now) >= max(EVERY_S, age_s * OF_ITS_AGE)


def _forget_oldest(session: Session, rollout_id: str) -> None:
    """Of those between moves, as many as there are too many."""
    mine = RolloutMomentRow.rollout_id == rollout_id, RolloutMomentRow.moved.is_(False)
    numbers = select(RolloutMomentRow.number).where(*mine)
    newest = numbers.order_by(RolloutMomentRow.number.desc()).offset(MOST_MOMENTS - 1).limit(1)
    if (first := session.scalar(newest)) is not None:
        session.execute(delete(RolloutMomentRow).where(*mine, RolloutMomentRow.number < first))


def _seconds(since: datetime, now: datetime) -> float:
    return (now - since).total_seconds()


def _last(session: Session, rollout_id: str) -> RolloutMomentRow | None:
    mine = RolloutMomentRow.rollout_id == rollout_id
    newest = select(func.max(RolloutMomentRow.number)).where(mine)
    number = session.scalar(newest)
    return None if number is None else session.get(RolloutMomentRow, (rollout_id, number))


def _outcomes(before: RolloutState, arms: RolloutTotals) -> OutcomesOfArms:
    return outcomes_of(arms.since(before.windows.base))


def _unpacked(payload: bytes) -> RolloutMoment:
    return _decoder.decode(zlib.decompress(payload))

"""Which rollouts there are, how they do, and which versions they keep loaded."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from control import paging
from control.errors import Invalid, NotFound
from control.paging import SortOrder
from control.rollout_tables import Rollout
from control.rollouts import counts, facts
from control.rollouts.evidence import decisive_moment
from control.rollouts.facts import NO_SIGNALS, Signals
from control.rollouts.plan_keys import stored_plan
from control.rollouts.policy import decide
from control.rollouts.state import ENDS, Phase, state_of
from control.rollouts.views import RolloutView, Standing, outcomes_of, view_of
from control.views import Page

_LOOK_BACK = 200


@dataclass(frozen=True, slots=True)
class KeptVersion:
    """A version that is to stay loaded; `by` says why."""

    model: str
    version: int
    by: str


def standing(
    session: Session, rollout_id: str, now: datetime, signals: Signals = NO_SIGNALS
) -> Standing:
    """How it does at this moment, changing nothing; one that has ended: how it did when the last
    thing was decided about it. Raises NotFound."""
    row = find(session, rollout_id)
    state = state_of(row.plan, row.state)
    if state.ended and (moment := decisive_moment(session, rollout_id)):
        return Standing(row.reason, moment.verdicts, moment.arms, "", moment.at)
    reading = counts.read(session, row.id, (), now)
    found = facts.seen(session, row, now, signals)
    decision = decide(state, found, now.timestamp())
    since = reading.arms.since(state.windows.base)
    verdicts = tuple(verdict.view() for verdict in decision.verdicts)
    return Standing(decision.words, verdicts, outcomes_of(since), found.problem)


def active(session: Session) -> list[RolloutView]:
    """What has not ended, by name."""
    rows = select(Rollout).where(Rollout.phase.not_in(ENDS)).order_by(Rollout.name)
    return [view_of(row) for row in session.scalars(rows)]


def under_way(session: Session) -> list[str]:
    """Ids of what has not ended, by name, whether or not it can be read."""
    rows = select(Rollout.id).where(Rollout.phase.not_in(ENDS)).order_by(Rollout.name)
    return list(session.scalars(rows))


def list_rollouts(
    session: Session,
    *,
    name: str | None = None,
    phase: str | None = None,
    cursor: str | None = None,
    limit: int = paging.USUAL,
) -> Page[RolloutView]:
    """Newest first. Raises Invalid."""
    wanted = select(Rollout)
    if name is not None:
        wanted = wanted.where(Rollout.name == name)
    if phase is not None:
        if phase not in tuple(Phase):
            raise Invalid(f"'{phase:.80}' is no phase; {', '.join(Phase)} are", "phase")
        wanted = wanted.where(Rollout.phase == phase)
    order = SortOrder((Rollout.id,), newest_first=True)
    return paging.page(session, wanted, order, cursor, limit).map(view_of)


def get_rollout(session: Session, rollout_id: str) -> RolloutView:
    """Raises NotFound."""
    return view_of(find(session, rollout_id))


def find(session: Session, rollout_id: str) -> Rollout:
    """The row, for the neighbours in this package. Raises NotFound."""
    row = session.get(Rollout, rollout_id) if rollout_id.isprintable() else None
    if row is None:
        raise NotFound(f"there is no rollout '{rollout_id:.80}'")
    return row


def stable_before(session: Session, name: str, most: int) -> list[int]:
    """The last `most` versions of a name that were stable before the present one, newest first."""
    seen = dict.fromkeys(_stable_versions(session, name))
    return list(seen)[1 : most + 1]


def kept(session: Session) -> list[KeptVersion]:
    """Versions that rollouts need: both arms while one is under way, and those to go back to."""
    under_way = session.scalars(select(Rollout).where(Rollout.phase.not_in(ENDS)))
    found = {key: by for row in under_way for key, by in _arms(row)}
    for row in _newest(session):
        window = stored_plan(row.plan).rollback_window
        for version in stable_before(session, row.name, window):
            found.setdefault((row.model, version), f"rollback window of '{row.name}'")
    return [KeptVersion(model, version, by) for (model, version), by in sorted(found.items())]


def _arms(row: Rollout) -> Iterator[tuple[tuple[str, int], str]]:
    by = f"rollout {row.id}"
    yield (row.model, row.candidate), by
    if row.stable is not None:
        yield (row.model, row.stable), by


def _newest(session: Session) -> list[Rollout]:
    """The last rollout of each name."""
    last = select(func.max(Rollout.id)).group_by(Rollout.name)
    return list(session.scalars(select(Rollout).where(Rollout.id.in_(last))))


def _stable_versions(session: Session, name: str) -> Iterator[int]:
    """The newest first, the present one before all others."""
    rows = select(Rollout).where(Rollout.name == name, Rollout.phase == Phase.HEALTHY)
    newest = rows.order_by(Rollout.finished_at.desc(), Rollout.id.desc()).limit(_LOOK_BACK)
    for row in session.scalars(newest):
        yield row.candidate
        if row.stable is not None:
            yield row.stable

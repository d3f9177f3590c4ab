"""What has happened: events for whoever follows along, and the audit for whoever asks later."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, func, or_, select
from sqlalchemy.orm import InstrumentedAttribute, Session

from control import paging
from control.paging import SortOrder
from control.sql.database import Transaction
from control.tables import Audit, Event
from control.views import AuditView, EventView, Page

KEEP_DAYS, KEEP_EVENTS = 30, 100_000
"""An event is removed once it is older than this and this many have followed it."""

FORGET_AT_ONCE = 10_000


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """Which audit rows; "" and None ask for all. `action` is a prefix, e.g. "alias."; `since`
    counts itself, `until` does not."""

    actor: str = ""
    action: str = ""
    subject: str = ""
    since: datetime | None = None
    until: datetime | None = None


def events_after(
    session: Session,
    event_id: int,
    limit: int = paging.USUAL,
    kinds: Sequence[str] = (),
    subjects: Sequence[str] = (),
    newest_first: bool = False,
) -> list[EventView]:
    """Events later than `event_id`, in commit order, at most `limit`; with `newest_first` the
    last of them instead, backwards.

    Each of `kinds` and `subjects` is a whole one or, ending in "*", the beginning of some; none
    asks for all. Raises Invalid for a bad limit.
    """
    paging.check_limit(limit)
    query = select(Event).where(Event.id > event_id)
    for column, patterns in ((Event.kind, kinds), (Event.subject, subjects)):
        if patterns:
            query = query.where(or_(*(_matches(column, one) for one in patterns)))
    order = Event.id.desc() if newest_first else Event.id
    return [_event(row) for row in session.scalars(query.order_by(order).limit(limit))]


def last_event(session: Session) -> int:
    """The id of the newest event, 0 before the first."""
    return session.scalar(select(func.max(Event.id))) or 0


def first_event(session: Session) -> int:
    """The id of the oldest event still kept, 0 before the first: what came before is forgotten."""
    return session.scalar(select(func.min(Event.id))) or 0


def audit_page(
    session: Session,
    cursor: str | None = None,
    filters: AuditFilter | None = None,
    limit: int = paging.USUAL,
) -> Page[AuditView]:
    """Newest first. Raises Invalid for a bad cursor or limit."""
    query = select(Audit).where(*_conditions(filters or AuditFilter()))
    order = SortOrder((Audit.id,), newest_first=True)
    return paging.page(session, query, order, cursor, limit).map(_audit)


def forget_events(tx: Transaction, keep_days: int = KEEP_DAYS, keep: int = KEEP_EVENTS) -> int:
    """Remove old events, at most FORGET_AT_ONCE; how many. Repeat while it is that many.

    At least `keep_days` days and at least `keep` events stay. The audit stays for good.
    """
    session = tx.session
    newest = session.scalar(select(Event.id).order_by(Event.id.desc()).offset(keep).limit(1))
    if newest is None:
        return 0
    since = tx.now - timedelta(days=keep_days)
    old = select(Event.id).where(Event.id <= newest, Event.at < since)
    ids = session.scalars(old.order_by(Event.id).limit(FORGET_AT_ONCE)).all()
    if ids:  # ids grow with time: everything up to the last of them goes
        session.execute(delete(Event).where(Event.id <= ids[-1], Event.at < since))
    return len(ids)


def _matches(column: InstrumentedAttribute[str], pattern: str) -> ColumnElement[bool]:
    if pattern.endswith("*"):
        return _begins(column, pattern[:-1])
    return column == pattern


def _begins(column: InstrumentedAttribute[str], prefix: str) -> ColumnElement[bool]:
    """Not LIKE, which ignores case on SQLite."""
    return func.substr(column, 1, len(prefix)) == prefix


def _conditions(filters: AuditFilter) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = []
    if filters.actor:
        conditions.append(Audit.actor == filters.actor)
    if filters.action:
        conditions.append(_begins(Audit.action, filters.action))
    if filters.subject:
        conditions.append(Audit.subject == filters.subject)
    if filters.since is not None:
        conditions.append(Audit.at >= filters.since)
    if filters.until is not None:
        conditions.append(Audit.at < filters.until)
    return conditions


def _event(row: Event) -> EventView:
    return EventView(row.id, row.at, row.kind, row.subject, row.actor, row.data)


def _audit(row: Audit) -> AuditView:
    fields = AuditView.__struct_fields__
    return AuditView(**{name: getattr(row, name) for name in fields})

"""The outbox: messages made of events, claimed one at a time for each webhook, settled after a try.

An event is committed with its cause; the cursor moves in the transaction that makes its messages,
under the fence of whoever holds the lease. So each event gives its messages once, whatever dies.
"""

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from sqlalchemy import and_, func, or_, select
from sqlalchemy.orm import Session

from control.clock import new_id
from control.events.history import events_after, last_event
from control.notifications import mutes, terms
from control.notifications.deliveries import forget_ended
from control.notifications.kinds import KINDS_OF_EVENTS, WITHIN, Notice, is_failure, notice_of
from control.notifications.policy import DeliveryState, WebhookAnswer, after_attempt, due_at
from control.notifications.tables import CURSOR, Delivery, NotificationMute, Webhook
from control.sql.database import Transaction
from control.tables import Counter, Event
from control.text import stored
from control.views import EventView

EVENTS_AT_ONCE = 200
MOST_WAITING = 200
"""Messages that wait for one webhook; the oldest gives way, and is counted."""

LONGEST_LAG = 1_000
"""Events that nobody is told of, after which the cursor moves all the same."""

LONGEST_ERROR = 1_000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class OutboxStatus:
    """What there is to do. `watched`: there is a webhook at all; `behind`: there are events to make
    messages of; `newest`: the event up to which that was looked at; `due`: when the next message of
    each webhook may be sent."""

    watched: bool = False
    behind: bool = False
    newest: int = 0
    due: Mapping[str, datetime] = field(default_factory=dict)


def status_of(session: Session, seen: int = 0) -> OutboxStatus:
    """Cheap: it is asked for after every commit. `seen`: of the events up to it the caller knows
    that none waits, from an earlier look."""
    enabled = select(func.count()).select_from(Webhook).where(Webhook.enabled)
    if not session.scalar(enabled):
        return OutboxStatus()
    wanted = (
        select(Webhook.name, Webhook.hold_until, func.min(Delivery.next_at))
        .join(Delivery, Delivery.webhook == Webhook.name)
        .where(Webhook.enabled, Delivery.state == DeliveryState.WAITING)
        .group_by(Webhook.name, Webhook.hold_until)
    )
    due = {
        name: max(next_at, hold_until or next_at)
        for name, hold_until, next_at in session.execute(wanted)
    }
    newest, cursor = last_event(session), _cursor(session)
    fresh = select(Event.id).where(
        Event.id > max(cursor, seen), Event.id <= newest, Event.kind.in_(KINDS_OF_EVENTS)
    )
    behind = session.scalar(fresh.limit(1)) is not None or newest - cursor > LONGEST_LAG
    return OutboxStatus(True, behind, newest, due)


def advance(tx: Transaction, known: Collection[str] = ()) -> int:
    """Make messages of the next events; how many events may be left to look at (0: none).

    `known`: models and versions whose problems are acknowledged.
    """
    session, newest = tx.session, last_event(tx.session)
    cursor = _cursor(session)
    events = events_after(session, cursor, EVENTS_AT_ONCE, KINDS_OF_EVENTS)
    events = [event for event in events if event.id <= newest]
    muted = mutes.mutes_in_force(tx)
    webhooks = list(session.scalars(select(Webhook).where(Webhook.enabled)))
    for notice in _notices(session, events):
        about = notice.kind, notice.models
        if mutes.is_muted(muted, *about) or mutes.is_acknowledged(known, *about, notice.version):
            continue
        for webhook in webhooks:
            mine = terms.covers(webhook.models, webhook.kinds, notice.kind, notice.models)
            if mine and notice.event > webhook.since:
                _enqueue(tx, webhook, notice)
    reached = events[-1].id if len(events) == EVENTS_AT_ONCE else newest
    _move_cursor(session, reached)
    return newest - reached


def claim(
    tx: Transaction, busy: Collection[str], most: int, known: Collection[str] = ()
) -> list[Delivery]:
    """The messages to be sent now, one for each webhook and `most` in all, each marked as being
    tried. `busy`: webhooks that the holder of this lease is sending to already; what another
    holder was sending when it lost the lease is sent again.

    What has been muted meanwhile, or is about `known` problems, ends here.
    """
    session, muted = tx.session, mutes.mutes_in_force(tx)
    free = or_(Webhook.hold_until.is_(None), Webhook.hold_until <= tx.now)
    ready = select(Webhook.name).where(Webhook.enabled, free)
    longest_ago = (Webhook.last_at.is_not(None), Webhook.last_at, Webhook.name)
    ready = ready.order_by(*longest_ago)  # by name, four that are slow would keep the others out
    claimed: list[Delivery] = []
    for name in session.scalars(ready).all():
        if len(claimed) == most:
            break
        if name not in busy and (row := _next_of(tx, name, muted, known)) is not None:
            row.attempts += 1
            row.fence = tx.fence.number if tx.fence else 0
            claimed.append(row)
    return claimed


def settle(tx: Transaction, delivery: str, attempts: int, answer: WebhookAnswer) -> None:
    """Write down what came of a try, its `attempts`-th; nothing for a message that somebody else
    has taken up, or whose webhook is gone."""
    tx.alone()
    row = tx.session.get(Delivery, delivery)
    if row is None or row.state != DeliveryState.WAITING or row.attempts != attempts:
        return
    webhook = tx.session.get_one(Webhook, row.webhook)
    verdict = after_attempt(
        answer,
        delivery=row.id,
        attempts=row.attempts,
        failures=webhook.failures,
        first_at=row.first_at,
        now=tx.now,
    )
    row.state, row.next_at, row.fence = verdict.state, verdict.next_at, 0
    row.last_status, row.last_error = answer.status, stored(answer.words, LONGEST_ERROR)
    row.finished_at = None if verdict.state == DeliveryState.WAITING else tx.now
    note_try(tx, webhook, answer, verdict.failures, verdict.hold_until)
    if row.finished_at is not None:
        facts = {"webhook": row.webhook, "title": row.title, "reason": row.last_error}
        tx.happened(f"delivery.{row.state}", f"delivery:{row.id}", **facts)


def note_try(
    tx: Transaction,
    webhook: Webhook,
    answer: WebhookAnswer,
    failures: int,
    hold_until: datetime | None,
) -> None:
    """On the webhook; the first failure in a row is an event."""
    if failures and not webhook.failures:
        words = stored(answer.words, LONGEST_ERROR)
        tx.happened("webhook.failing", f"webhook:{webhook.name}", reason=words)
    webhook.failures, webhook.hold_until = failures, hold_until
    webhook.last_at, webhook.last_status = tx.now, answer.status
    webhook.last_error = stored(answer.words, LONGEST_ERROR)
    if answer.accepted:
        webhook.delivered_at = tx.now


def _notices(session: Session, events: Iterable[EventView]) -> Iterable[Notice]:
    for event in events:
        try:
            failures = _failures(session, event) if is_failure(event) else 1
            notice = notice_of(event, failures)
        except (AttributeError, TypeError, ValueError):  # one event must not stop all others
            _log.exception("event %d gives no notification. This is a bug.", event.id)
            continue
        if notice is not None:
            yield notice


def _failures(session: Session, event: EventView) -> int:
    """How often this version has failed on this server lately, up to this event."""
    lately = select(Event.data).where(
        Event.subject == event.subject,
        Event.kind == event.kind,
        Event.id <= event.id,
        Event.at >= event.at - WITHIN,
    )
    same = ("server", "version", "state")
    return sum(
        all(data.get(name) == event.data.get(name) for name in same)
        for data in session.scalars(lately)
    )


def _enqueue(tx: Transaction, webhook: Webhook, notice: Notice) -> None:
    """A message of its own, or one more on one that says the same and is not sent yet."""
    session = tx.session
    last_sent = None
    if webhook.window_s:
        alike = select(Delivery).where(
            Delivery.webhook == webhook.name,
            Delivery.key == notice.key,
            Delivery.state.in_((DeliveryState.WAITING, DeliveryState.DELIVERED)),
        )
        for row in session.scalars(alike.order_by(Delivery.event)):
            if row.state == DeliveryState.WAITING and not row.attempts:
                row.count, row.last_at = row.count + 1, notice.at
                row.title, row.reason = notice.title, notice.reason
                return
            last_sent = row.finished_at or tx.now
    next_at = due_at(last_sent, webhook.window_s, tx.now)
    session.add(_row(tx, webhook, notice, next_at))
    session.flush()
    _make_room(session, webhook)
    forget_ended(session, webhook.name)


def _row(tx: Transaction, webhook: Webhook, notice: Notice, next_at: datetime) -> Delivery:
    return Delivery(
        id=new_id(tx.now),
        webhook=webhook.name,
        key=notice.key,
        event=notice.event,
        kind=notice.kind,
        subject=notice.subject,
        models=[*notice.models],
        version=notice.version,
        title=notice.title,
        reason=notice.reason,
        page=notice.page,
        actor=notice.actor,
        count=1,
        first_at=notice.at,
        last_at=notice.at,
        state=DeliveryState.WAITING,
        attempts=0,
        next_at=next_at,
        fence=0,
        last_status=0,
        last_error="",
        finished_at=None,
    )


def _make_room(session: Session, webhook: Webhook) -> None:
    waiting = Delivery.webhook == webhook.name, Delivery.state == DeliveryState.WAITING
    number = session.scalar(select(func.count()).select_from(Delivery).where(*waiting)) or 0
    if number <= MOST_WAITING:
        return
    oldest = select(Delivery).where(*waiting, Delivery.fence == 0)
    for row in session.scalars(oldest.order_by(Delivery.event).limit(number - MOST_WAITING)):
        session.delete(row)
        webhook.dropped += 1


def _next_of(
    tx: Transaction, webhook: str, muted: list[NotificationMute], known: Collection[str]
) -> Delivery | None:
    """The message of a webhook that has waited longest since its last try."""
    due = and_(Delivery.state == DeliveryState.WAITING, Delivery.next_at <= tx.now)
    mine = select(Delivery).where(Delivery.webhook == webhook, due)
    for row in tx.session.scalars(mine.order_by(Delivery.next_at, Delivery.event)):
        is_known = mutes.is_acknowledged(known, row.kind, row.models, row.version)
        if not is_known and not mutes.is_muted(muted, row.kind, row.models):
            return row
        row.state, row.finished_at = DeliveryState.MUTED, tx.now
        tx.happened("delivery.muted", f"delivery:{row.id}", webhook=webhook, title=row.title)
    return None


def _cursor(session: Session) -> int:
    return session.scalar(select(Counter.value).where(Counter.name == CURSOR)) or 0


def _move_cursor(session: Session, event: int) -> None:
    row = session.get(Counter, CURSOR)
    if row is None:
        session.add(Counter(name=CURSOR, value=event))
    else:
        row.value = max(row.value, event)

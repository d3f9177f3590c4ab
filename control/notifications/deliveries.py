"""Deliveries as they are listed: messages that wait, and for a while those that have ended."""

from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from control import paging
from control.errors import Invalid, NotFound
from control.notifications.kinds import NotificationKind
from control.notifications.policy import DeliveryState
from control.notifications.tables import Delivery, Webhook
from control.notifications.views import DeliveryView
from control.paging import SortOrder
from control.sql.database import Transaction
from control.views import Page

MOST_ENDED, KEPT = 200, timedelta(days=7)
"""Messages of one webhook that have ended and are still listed, and how long."""


def list_deliveries(
    session: Session,
    *,
    webhook: str | None = None,
    state: str | None = None,
    cursor: str | None = None,
    limit: int = paging.USUAL,
) -> Page[DeliveryView]:
    """Newest first. Raises Invalid."""
    wanted = select(Delivery)
    if webhook is not None:
        wanted = wanted.where(Delivery.webhook == webhook)
    if state is not None:
        wanted = wanted.where(Delivery.state == _parse_state(state))
    order = SortOrder((Delivery.id,), newest_first=True)
    holds = dict(session.execute(select(Webhook.name, Webhook.hold_until)).all())
    found = paging.page(session, wanted, order, cursor, limit)
    return found.map(lambda row: _view(row, holds.get(row.webhook)))


def get_delivery(session: Session, delivery: str) -> DeliveryView:
    """Raises NotFound."""
    row = _find(session, delivery)
    return _view(row, session.get_one(Webhook, row.webhook).hold_until)


def retry_delivery(tx: Transaction, delivery: str) -> DeliveryView:
    """Send it now, once more if it has arrived: with the same id. Raises NotFound."""
    tx.alone()
    row = _find(tx.session, delivery)
    before = {"state": str(row.state)}
    row.state, row.next_at, row.finished_at = DeliveryState.WAITING, tx.now, None
    webhook = tx.session.get_one(Webhook, row.webhook)
    webhook.hold_until = None
    after = {"state": str(row.state)}
    tx.changed("delivery.retried", f"delivery:{row.id}", before, after, webhook=row.webhook)
    tx.session.flush()
    return _view(row, None)


def forget_deliveries(tx: Transaction) -> None:
    """Those that ended long ago, or of which a webhook has too many."""
    session = tx.session
    ended = Delivery.state != DeliveryState.WAITING
    session.execute(delete(Delivery).where(ended, Delivery.finished_at <= tx.now - KEPT))
    for name in session.scalars(select(Webhook.name)).all():
        forget_ended(session, name)


def forget_ended(session: Session, webhook: str) -> None:
    """Those of one webhook beyond `MOST_ENDED`."""
    mine = (Delivery.webhook == webhook, Delivery.state != DeliveryState.WAITING)
    newest_first = select(Delivery.id).where(*mine).order_by(Delivery.id.desc())
    oldest = session.scalar(newest_first.offset(MOST_ENDED).limit(1))
    if oldest is not None:
        session.execute(delete(Delivery).where(*mine, Delivery.id <= oldest))


def _find(session: Session, delivery: str) -> Delivery:
    """Raises NotFound."""
    row = session.get(Delivery, delivery) if delivery.isprintable() else None
    if row is None:
        raise NotFound(f"there is no delivery '{delivery:.80}'")
    return row


def _parse_state(state: str) -> DeliveryState:
    if state not in tuple(DeliveryState):
        known = ", ".join(DeliveryState)
        raise Invalid(f"'{state:.80}' is no state of a delivery; {known} are", "state")
    return DeliveryState(state)


def _view(row: Delivery, hold_until: datetime | None) -> DeliveryView:
    """`hold_until`: of its webhook."""
    same = {
        name: getattr(row, name)
        for name in DeliveryView.__struct_fields__
        if name not in ("kind", "models", "state", "next_at")
    }
    waits, next_at = row.state == DeliveryState.WAITING, row.next_at
    if hold_until is not None:
        next_at = max(next_at, hold_until)
    return DeliveryView(
        kind=NotificationKind(row.kind),
        models=tuple(row.models),
        state=DeliveryState(row.state),
        next_at=next_at if waits else None,
        **same,
    )

"""Webhooks as rows: created, changed, rotated, deleted. Their URLs and secrets are written only."""

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from control import paging
from control.errors import Conflict, NotFound
from control.events.history import last_event
from control.notifications import terms
from control.notifications.kinds import NotificationKind
from control.notifications.payload import BodyFormat, secret_of
from control.notifications.policy import DeliveryState
from control.notifications.tables import CURSOR, Delivery, Webhook
from control.notifications.targets import hidden, target_of
from control.notifications.views import WebhookView
from control.paging import SortOrder
from control.sql.database import Transaction, expect_revision
from control.tables import Counter
from control.views import Page

MOST_WEBHOOKS = 50
SECRET_BYTES = 32
ROTATION = timedelta(hours=24)
"""How long messages are signed with the old secret as well, after a new one was made."""


@dataclass(frozen=True, slots=True)
class WebhookTerms:
    """What a webhook is to be; None leaves what there is, or the usual: JSON, all kinds and
    models, ten minutes, enabled."""

    url: str | None = None
    format: str | None = None
    kinds: Sequence[str] | None = None
    models: Sequence[str] | None = None
    window_s: int | None = None
    enabled: bool | None = None


@dataclass(frozen=True, slots=True)
class WebhookSecret:
    """The only moment at which the `text` is known; show it to whoever asked and forget it."""

    view: WebhookView
    text: str = field(repr=False)


def create_webhook(
    tx: Transaction, name: str, wanted: WebhookTerms, allowed: Sequence[str] = ()
) -> WebhookSecret:
    """What happens from now on is sent to it. `allowed`: prefixes of URLs, from the settings.

    Raises Invalid, Conflict for a name that is taken or one webhook too many.
    """
    terms.check_name(name)
    tx.alone()
    if tx.session.get(Webhook, name) is not None:
        raise Conflict(f"there is a webhook '{name}' already; choose another name")
    number = tx.session.scalar(select(func.count()).select_from(Webhook)) or 0
    if number >= MOST_WEBHOOKS:
        raise Conflict(f"there are {number} webhooks; delete one first")
    newest = last_event(tx.session)
    if not number:
        _start_at(tx.session, newest)
    row = Webhook(
        name=name,
        url="",
        format=BodyFormat.JSON,
        kinds=[],
        models=["*"],
        window_s=terms.USUAL_WINDOW_S,
        enabled=True,
        secret=_new_secret(),
        old_secret="",
        old_secret_until=None,
        since=newest,
        failures=0,
        hold_until=None,
        dropped=0,
        last_at=None,
        last_status=0,
        last_error="",
        delivered_at=None,
        created_at=tx.now,
        revision=0,
    )
    _take(tx, row, wanted, allowed)
    tx.session.add(row)
    tx.changed("webhook.created", f"webhook:{name}", None, _facts(row))
    tx.session.flush()
    return WebhookSecret(view_of(row, 0), row.secret)


def change_webhook(
    tx: Transaction,
    name: str,
    wanted: WebhookTerms,
    allowed: Sequence[str] = (),
    expected: int | None = None,
) -> WebhookView:
    """A webhook that gets another URL, or is enabled again, is tried at once; one that was disabled
    is sent nothing of what happened meanwhile. Raises NotFound, Invalid, Stale."""
    row = _find_for_change(tx, name, expected)
    before, was_enabled = _facts(row), row.enabled
    _take(tx, row, wanted, allowed)
    if wanted.url is not None or (row.enabled and not was_enabled):
        row.failures, row.hold_until = 0, None
    if row.enabled and not was_enabled:
        row.since = last_event(tx.session)
    moved = {"url": "changed"} if wanted.url is not None else {}
    tx.changed("webhook.changed", f"webhook:{name}", before, {**_facts(row), **moved})
    return view_of(row, _waiting(tx.session, name))


def rotate_secret(tx: Transaction, name: str, at_once: bool = False) -> WebhookSecret:
    """A new secret; messages are signed with both for `ROTATION`, or with the new one alone if
    the old one is not to be believed any more. Raises NotFound."""
    row = _find_for_change(tx, name)
    row.old_secret, row.old_secret_until = row.secret, tx.now + ROTATION
    if at_once:
        row.old_secret, row.old_secret_until = "", None
    row.secret = _new_secret()
    row.updated_at, row.updated_by = tx.now, tx.actor.principal
    row.revision += 1
    facts = _facts(row)
    tx.changed("webhook.rotated", f"webhook:{name}", facts, facts, at_once=at_once)
    return WebhookSecret(view_of(row, _waiting(tx.session, name)), row.secret)


def delete_webhook(tx: Transaction, name: str, expected: int | None = None) -> None:
    """With the messages that wait for it. Raises NotFound, Stale."""
    row = _find_for_change(tx, name, expected)
    tx.session.execute(delete(Delivery).where(Delivery.webhook == name))
    tx.session.delete(row)
    tx.changed("webhook.deleted", f"webhook:{name}", _facts(row), None)


def get_webhook(session: Session, name: str) -> WebhookView:
    """Raises NotFound."""
    return view_of(find(session, name), _waiting(session, name))


def list_webhooks(
    session: Session, *, cursor: str | None = None, limit: int = paging.USUAL
) -> Page[WebhookView]:
    """By name. Raises Invalid for a bad cursor or limit."""
    found = paging.page(session, select(Webhook), SortOrder((Webhook.name,)), cursor, limit)
    waits = select(Delivery.webhook, func.count()).where(Delivery.state == DeliveryState.WAITING)
    waiting = dict(session.execute(waits.group_by(Delivery.webhook)).all())
    return found.map(lambda row: view_of(row, waiting.get(row.name, 0)))


def find(session: Session, name: str) -> Webhook:
    """Raises NotFound."""
    row = session.get(Webhook, name) if name.isprintable() else None
    if row is None:
        raise NotFound(f"there is no webhook '{name:.80}'")
    return row


def view_of(row: Webhook, waiting: int) -> WebhookView:
    return WebhookView(
        name=row.name,
        url=hidden(row.url),
        format=BodyFormat(row.format),
        kinds=tuple(NotificationKind(one) for one in row.kinds),
        models=tuple(row.models),
        window_s=row.window_s,
        enabled=row.enabled,
        waiting=waiting,
        dropped=row.dropped,
        failures=row.failures,
        next_try_at=row.hold_until,
        last_at=row.last_at,
        last_status=row.last_status,
        last_error=row.last_error,
        delivered_at=row.delivered_at,
        old_secret_until=row.old_secret_until,
        created_at=row.created_at,
        updated_at=row.updated_at,
        updated_by=row.updated_by,
        revision=row.revision,
    )


def _find_for_change(tx: Transaction, name: str, expected: int | None = None) -> Webhook:
    tx.alone()
    row = find(tx.session, name)
    expect_revision(row.revision, expected, f"the webhook '{name}'")
    return row


def _take(tx: Transaction, row: Webhook, wanted: WebhookTerms, allowed: Sequence[str]) -> None:
    """Raises Invalid."""
    if wanted.url is not None:
        target_of(wanted.url, allowed)
        row.url = wanted.url
    if wanted.format is not None:
        row.format = terms.read_format(wanted.format)
    if wanted.kinds is not None:
        row.kinds = terms.read_kinds(wanted.kinds)
    if wanted.models is not None:
        row.models = terms.read_models(wanted.models)
    if wanted.window_s is not None:
        terms.check_window(wanted.window_s)
        row.window_s = wanted.window_s
    if wanted.enabled is not None:
        row.enabled = wanted.enabled
    row.updated_at, row.updated_by = tx.now, tx.actor.principal
    row.revision += 1


def _start_at(session: Session, event: int) -> None:
    """Nothing was looked at while there was nobody to tell."""
    row = session.get(Counter, CURSOR)
    if row is None:
        session.add(Counter(name=CURSOR, value=event))
    else:
        row.value = event


def _waiting(session: Session, name: str) -> int:
    waits = Delivery.webhook == name, Delivery.state == DeliveryState.WAITING
    return session.scalar(select(func.count()).select_from(Delivery).where(*waits)) or 0


def _new_secret() -> str:
    return secret_of(secrets.token_bytes(SECRET_BYTES))


def _facts(row: Webhook) -> dict[str, Any]:
    """Neither path nor query of the URL, nor a secret: whoever reads events reads this."""
    return {
        "url": hidden(row.url),
        "format": str(row.format),
        "kinds": [*row.kinds],
        "models": [*row.models],
        "window_s": row.window_s,
        "enabled": row.enabled,
    }

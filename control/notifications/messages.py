"""Messages ready to be sent: a delivery's row and its webhook's made into URL, headers and body."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from control.clock import new_id
from control.notifications.outbox import note_try
from control.notifications.payload import (
    TEST,
    MessageData,
    WebhookMessage,
    body_of,
    headers_of,
)
from control.notifications.policy import WebhookAnswer
from control.notifications.tables import Delivery, Webhook
from control.notifications.views import WebhookTestView
from control.notifications.webhooks import find
from control.sql.database import Transaction

TEST_TITLE = "Test message"


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """What `control.notifications.sender` sends. `attempts`: this try, counted from 1."""

    delivery: str
    webhook: str
    attempts: int
    url: str = field(repr=False)
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


def message_of(tx: Transaction, row: Delivery, console_url: str) -> OutgoingMessage:
    """The message that a claimed delivery stands for, signed now."""
    webhook = tx.session.get_one(Webhook, row.webhook)
    message = WebhookMessage(
        id=row.id,
        type=row.kind,
        timestamp=tx.now,
        data=MessageData(
            webhook=row.webhook,
            subject=row.subject,
            models=tuple(row.models),
            version=row.version or None,
            title=row.title,
            reason=row.reason,
            count=row.count,
            first_at=row.first_at,
            last_at=row.last_at,
            url=f"{console_url}{row.page}",
            actor=row.actor,
            dropped=webhook.dropped,
        ),
    )
    return _outgoing(tx, webhook, message, row.attempts)


def message_for_test(tx: Transaction, name: str, console_url: str) -> OutgoingMessage:
    """A message that says it is a test, for one webhook, whether it is enabled or not.

    Raises NotFound.
    """
    webhook = find(tx.session, name)
    message = WebhookMessage(
        id=new_id(tx.now),
        type=TEST,
        timestamp=tx.now,
        data=MessageData(
            webhook=name,
            subject=f"webhook:{name}",
            models=(),
            version=None,
            title=TEST_TITLE,
            reason=f"sent to the webhook '{name}' by hand, to see whether messages arrive",
            count=1,
            first_at=tx.now,
            last_at=tx.now,
            url=f"{console_url}/notifications/{name}",
            actor=tx.actor.principal,
            dropped=webhook.dropped,
        ),
    )
    tx.changed("webhook.tested", f"webhook:{name}", None, {"id": message.id})
    return _outgoing(tx, webhook, message, 1)


def settle_test(tx: Transaction, message: OutgoingMessage, answer: WebhookAnswer) -> None:
    """After a test that arrived, what waits is sent at once; one that did not holds up nothing."""
    tx.alone()
    webhook = tx.session.get(Webhook, message.webhook)
    if webhook is not None and answer.accepted:
        note_try(tx, webhook, answer, 0, None)


def view_of_test(message: OutgoingMessage, answer: WebhookAnswer) -> WebhookTestView:
    return WebhookTestView(
        id=message.delivery,
        delivered=answer.accepted,
        status=answer.status,
        answer=answer.text,
        error=answer.words,
        took_s=round(answer.took_s, 3),
    )


def _outgoing(
    tx: Transaction, webhook: Webhook, message: WebhookMessage, attempts: int
) -> OutgoingMessage:
    body = body_of(message, webhook.format)
    secrets = [webhook.secret]
    if webhook.old_secret_until is not None and webhook.old_secret_until > tx.now:
        secrets.append(webhook.old_secret)
    return OutgoingMessage(
        delivery=message.id,
        webhook=webhook.name,
        attempts=attempts,
        url=webhook.url,
        headers=headers_of(message.id, body, secrets, tx.now),
        body=body,
    )

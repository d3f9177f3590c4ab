"""Webhooks, events and the outbox for tests of notifications, at moments that the test says."""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

from control.notifications import outbox
from control.notifications.policy import WebhookAnswer
from control.notifications.tables import Delivery, Webhook
from control.notifications.webhooks import WebhookTerms, create_webhook
from control.sql.database import SYSTEM, Database, Fence, Transaction
from support.control import ADA, rows

START = datetime(2026, 11, 24, 12, tzinfo=UTC)
URL = "https://hooks.example.com/secret-path"
AWAY = WebhookAnswer(0, error="refused")
FINE = WebhookAnswer(200, "ok")


@contextmanager
def at(
    database: Database, seconds: float = 0.0, fence: Fence | None = None
) -> Iterator[Transaction]:
    """A transaction of the server's own, so many seconds after `START`."""
    with database.change(SYSTEM, fence) as tx:
        tx.now = START + timedelta(seconds=seconds)
        yield tx


def webhook(
    database: Database,
    name: str = "on-call",
    url: str = URL,
    allowed: Collection[str] = (),
    **terms: object,
) -> str:
    """A new one; its secret."""
    with database.change(ADA) as tx:
        wanted = WebhookTerms(url=url, **terms)  # type: ignore[arg-type]
        return create_webhook(tx, name, wanted, tuple(allowed)).text


def failed(
    database: Database,
    model: str = "digits",
    reason: str = "it is broken",
    seconds: float = 0.0,
    version: int = 1,
    server: str = "s1",
) -> None:
    """The event of a version that failed, and the outbox made aware of it."""
    with at(database, seconds) as tx:
        tx.happened(
            "load.changed",
            f"model:{model}",
            server=server,
            version=version,
            state="FAILED",
            reason=reason,
        )
    with at(database, seconds) as tx:
        while outbox.advance(tx):
            pass


def claimed(
    database: Database, seconds: float = 0.0, busy: Collection[str] = (), most: int = 10
) -> list[tuple[str, int]]:
    """Ids and tries of the messages that are to be sent now."""
    with at(database, seconds) as tx:
        return [(row.id, row.attempts) for row in outbox.claim(tx, busy, most)]


def settled(
    database: Database, delivery: tuple[str, int], answer: WebhookAnswer, seconds: float = 0.0
) -> None:
    with at(database, seconds) as tx:
        outbox.settle(tx, *delivery, answer)


def deliveries(database: Database) -> list[Delivery]:
    return sorted(rows(database, Delivery), key=lambda row: (row.event, row.webhook))


def hook(database: Database, name: str = "on-call") -> Webhook:
    (found,) = (row for row in rows(database, Webhook) if row.name == name)
    return found  # type: ignore[no-any-return]

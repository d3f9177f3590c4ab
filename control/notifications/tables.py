"""The rows of notifications: webhooks, messages to them, and mutes."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, Index, Text
from sqlalchemy.orm import Mapped, mapped_column

from control.tables import NOT_BACKED_UP, Table

CURSOR = "notification"
"""The counter whose value is the last event that was looked at for notices."""


class Webhook(Table):
    """A URL that messages are sent to. `url` and the secrets are never shown again. `kinds`, empty
    for all; `models`: names that may hold *. `since`: events after this one count.

    Of its tries: `failures` in a row, `hold_until` before which nothing is sent, `dropped` messages
    that found no room, and how the last one ended.
    """

    __tablename__ = "webhook"
    name: Mapped[str] = mapped_column(primary_key=True)
    url: Mapped[str] = mapped_column(Text())
    format: Mapped[str]
    kinds: Mapped[list[str]]
    models: Mapped[list[str]]
    window_s: Mapped[int]
    enabled: Mapped[bool]
    secret: Mapped[str]
    old_secret: Mapped[str]
    old_secret_until: Mapped[datetime | None]
    since: Mapped[int]
    failures: Mapped[int]
    hold_until: Mapped[datetime | None]
    dropped: Mapped[int]
    last_at: Mapped[datetime | None]
    last_status: Mapped[int]
    last_error: Mapped[str] = mapped_column(Text())
    delivered_at: Mapped[datetime | None]
    created_at: Mapped[datetime]
    updated_at: Mapped[datetime]
    updated_by: Mapped[str]
    revision: Mapped[int]


class Delivery(Table):
    """A message to one webhook; `control.notifications.policy.DeliveryState` has its states.

    `key`: equal for messages that say the same. `event`: the first one that it tells of. `fence`:
    the lease under which it is being sent, 0 while it is not. `first_at`, `last_at`: of the `count`
    events it tells of.
    """

    __tablename__ = "delivery"
    __table_args__ = (
        Index("ix_delivery_webhook_key", "webhook", "key"),
        NOT_BACKED_UP,
    )
    id: Mapped[str] = mapped_column(primary_key=True)
    webhook: Mapped[str] = mapped_column(ForeignKey("webhook.name"))
    key: Mapped[str]
    event: Mapped[int]
    kind: Mapped[str]
    subject: Mapped[str]
    models: Mapped[list[Any]] = mapped_column(JSON())
    version: Mapped[int]
    title: Mapped[str] = mapped_column(Text())
    reason: Mapped[str] = mapped_column(Text())
    page: Mapped[str] = mapped_column(Text())
    actor: Mapped[str]
    count: Mapped[int]
    first_at: Mapped[datetime]
    last_at: Mapped[datetime]
    state: Mapped[str]
    attempts: Mapped[int]
    next_at: Mapped[datetime]
    fence: Mapped[int]
    last_status: Mapped[int]
    last_error: Mapped[str] = mapped_column(Text())
    finished_at: Mapped[datetime | None]


class NotificationMute(Table):
    """No message about these models, of these kinds (empty for all), until then; None: for good."""

    __tablename__ = "notification_mute"
    id: Mapped[str] = mapped_column(primary_key=True)
    model: Mapped[str]
    kinds: Mapped[list[str]]
    note: Mapped[str] = mapped_column(Text())
    until: Mapped[datetime | None]
    created_at: Mapped[datetime]
    by: Mapped[str]

"""Webhooks, deliveries and mutes as the control API answers them. Pure."""

import msgspec

from control.clock import Moment
from control.notifications.kinds import NotificationKind
from control.notifications.payload import BodyFormat
from control.notifications.policy import DeliveryState


class WebhookView(msgspec.Struct, frozen=True, kw_only=True):
    """A webhook. `url`: without its path and query, which may be secret; `kinds`, empty for all;
    `models`: names that may hold *; `window_s`: within so many seconds what says the same of the
    same thing is one message. `waiting`: messages that are to be sent; `dropped`: messages that
    found no room among them, ever; `failures`: tries in a row that failed; `next_try_at`: before
    which nothing is sent, null for at once; `last_status`: of the last try, 0 where nobody
    answered; `last_error`: "" where it went well; `old_secret_until`: until when messages are
    signed with the secret before the last rotation as well."""

    name: str
    url: str
    format: BodyFormat
    kinds: tuple[NotificationKind, ...]
    models: tuple[str, ...]
    window_s: int
    enabled: bool
    waiting: int
    dropped: int
    failures: int
    next_try_at: Moment | None
    last_at: Moment | None
    last_status: int
    last_error: str
    delivered_at: Moment | None
    old_secret_until: Moment | None
    created_at: Moment
    updated_at: Moment
    updated_by: str
    revision: int


class WebhookSecretView(msgspec.Struct, frozen=True):
    """A webhook with its new secret, which no other response has."""

    webhook: WebhookView
    secret: str


class DeliveryView(msgspec.Struct, frozen=True, kw_only=True):
    """A message to a webhook. `id` is the header `webhook-id`. `subject`: of the event it came
    from; `version` 0: none in particular; `count`: how often it happened from `first_at` to
    `last_at`; `attempts`: tries to send it; `next_at`: of the next one, null once it has ended."""

    id: str
    webhook: str
    kind: NotificationKind
    subject: str
    models: tuple[str, ...]
    version: int
    title: str
    reason: str
    page: str
    actor: str
    count: int
    first_at: Moment
    last_at: Moment
    state: DeliveryState
    attempts: int
    next_at: Moment | None
    last_status: int
    last_error: str
    finished_at: Moment | None


class WebhookTestView(msgspec.Struct, frozen=True):
    """What came of a test message: whether it was accepted, the receiver's status (0: no answer),
    the beginning of what it said, why it failed, and how long it took. `id`: the header
    `webhook-id`."""

    id: str
    delivered: bool
    status: int
    answer: str
    error: str
    took_s: float


class MuteView(msgspec.Struct, frozen=True):
    """No messages about `model`, which may hold *, of `kinds` (empty for all) until then; null:
    until it is deleted."""

    id: str
    model: str
    kinds: tuple[NotificationKind, ...]
    note: str
    until: Moment | None
    created_at: Moment
    by: str

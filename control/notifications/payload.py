"""The body of a message and its signature, as "Standard Webhooks" (version 1) has them. Pure."""

import base64
import hashlib
import hmac
from collections.abc import Sequence
from datetime import datetime
from enum import StrEnum

import msgspec

from control.clock import Moment, text_of

ID, TIMESTAMP, SIGNATURE = "webhook-id", "webhook-timestamp", "webhook-signature"
"""The headers of every message."""

SECRET_PREFIX = "whsec_"
TEST = "test"
"""The type of a test message."""


class BodyFormat(StrEnum):
    JSON = "json"
    SLACK = "slack"  # what Slack, Mattermost, Rocket.Chat and Discord's /slack take


class MessageData(msgspec.Struct, frozen=True, kw_only=True):
    """What a message is about. `models`: names, empty where none is known; `version` is left out
    where there is none; `count`: how often it happened from `first_at` to `last_at`; `url`: the
    console's page; `actor`: whose doing it was, "" for the server's own; `webhook`: whom it is
    sent to; `dropped`: messages to the same webhook that were thrown away unsent, ever."""

    webhook: str
    subject: str
    models: tuple[str, ...]
    version: int | None
    title: str
    reason: str
    count: int
    first_at: Moment
    last_at: Moment
    url: str
    actor: str
    dropped: int


class WebhookMessage(msgspec.Struct, frozen=True, kw_only=True):
    """The JSON body. `id` is the header's: the same at every try, so that a receiver knows what it
    has. `type`: a kind of notification, or "test"."""

    id: str
    type: str
    timestamp: Moment
    data: MessageData


class SlackMessage(msgspec.Struct, frozen=True):
    """The body of a Slack-compatible webhook."""

    text: str


def body_of(message: WebhookMessage, body_format: BodyFormat | str) -> bytes:
    """The bytes that are signed and sent."""
    if body_format == BodyFormat.SLACK:
        return msgspec.json.encode(SlackMessage(_slack_text(message)))
    return msgspec.json.encode(message)


def headers_of(delivery: str, body: bytes, secrets: Sequence[str], now: datetime) -> dict[str, str]:
    """Id, time and signatures: one for each secret, while a new one takes over from an old one."""
    timestamp = str(int(now.timestamp()))
    signatures = [f"v1,{signature(secret, delivery, timestamp, body)}" for secret in secrets]
    return {ID: delivery, TIMESTAMP: timestamp, SIGNATURE: " ".join(signatures)}


def signature(secret: str, delivery: str, timestamp: str, body: bytes) -> str:
    """HMAC-SHA256 over id, timestamp and body, joined by dots; base64."""
    key = base64.b64decode(secret.removeprefix(SECRET_PREFIX))
    signed = b".".join((delivery.encode(), timestamp.encode(), body))
    return base64.b64encode(hmac.digest(key, signed, hashlib.sha256)).decode()


def secret_of(random: bytes) -> str:
    """The text of a secret made of random bytes."""
    return SECRET_PREFIX + base64.b64encode(random).decode()


def _slack_text(message: WebhookMessage) -> str:
    data = message.data
    lines = [f"*{_escaped(data.title)}*"]
    if data.reason:
        lines.append(_escaped(data.reason))
    if data.count > 1:
        lines.append(f"{data.count} times from {text_of(data.first_at)} to {text_of(data.last_at)}")
    if data.actor:
        lines.append(f"by {_escaped(data.actor)}")
    if data.url:
        lines.append(f"<{_escaped(data.url)}|Open in the console>")
    return "\n".join(lines)


def _escaped(text: str) -> str:
    """For Slack's text, in which these three have meanings of their own: a reason is no mention of
    a channel and no link."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")

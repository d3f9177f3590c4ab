"""Moments in time as the tables keep them, and names that sort by the time they were made."""

import secrets
from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta

Moment = Annotated[datetime, Meta(tz=True)]
"""A field of a message that holds a moment with its zone."""

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"
_TIME_CHARS, _RANDOM_BITS = 10, 50


def utc_now() -> datetime:
    return datetime.now(UTC)


def new_id(now: datetime) -> str:
    """A name of 20 lower-case characters; names made later sort after earlier ones (to the ms)."""
    number = int(now.timestamp() * 1000) << _RANDOM_BITS | secrets.randbits(_RANDOM_BITS)
    chars = []
    for _ in range(_TIME_CHARS + _RANDOM_BITS // 5):
        number, digit = divmod(number, 32)
        chars.append(_ALPHABET[digit])
    return "".join(reversed(chars))


def text_of(moment: datetime) -> str:
    """RFC 3339 in UTC to the millisecond, e.g. "2026-11-21T04:24:00.125Z"."""
    return moment.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

"""Lists in pages: the cursor is opaque to whoever got it, and stays good while rows come and go."""

import base64
import binascii
import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from sqlalchemy import Select, tuple_
from sqlalchemy.orm import InstrumentedAttribute, Session

from control.errors import Invalid
from control.views import Page

USUAL, MOST = 100, 500
"""Things on a page: when nobody says how many, and at most."""

_LONGEST_CURSOR = 2048

T = TypeVar("T")
R = TypeVar("R")
Key = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class SortOrder:
    """What a list is sorted by: columns that together name one row, none of them null."""

    columns: tuple[InstrumentedAttribute[Any], ...]
    newest_first: bool = False


def page(
    session: Session,
    statement: Select[T],
    order: SortOrder,
    cursor: str | None = None,
    limit: int = USUAL,
) -> Page[T]:
    """The rows after `cursor`, at most `limit`. Raises Invalid for either being none of ours."""
    check_limit(limit)
    columns = order.columns
    if cursor is not None:
        after = tuple_(*key_of(cursor, [column.type.python_type for column in columns]))
        here = tuple_(*columns)
        statement = statement.where(here < after if order.newest_first else here > after)
    by = [column.desc() if order.newest_first else column.asc() for column in columns]
    rows = session.scalars(statement.order_by(*by).limit(limit + 1)).all()
    if len(rows) <= limit:
        return Page(tuple(rows))
    last = rows[limit - 1]
    key = tuple(getattr(last, column.key) for column in columns)
    return Page(tuple(rows[:limit]), cursor_of(key))


def check_limit(limit: int) -> None:
    """Raises Invalid."""
    if not 1 <= limit <= MOST:
        raise Invalid(f"limit must be 1 to {MOST}, got {limit}", "limit")


def cursor_of(key: Key) -> str:
    packed = json.dumps(key, separators=(",", ":")).encode()
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def key_of(cursor: str, types: Sequence[type]) -> Key:
    """The key in a cursor, its parts of these types. Raises Invalid."""
    try:
        padded = cursor[:_LONGEST_CURSOR] + "=" * (-len(cursor) % 4)
        parts = json.loads(base64.urlsafe_b64decode(padded.encode("ascii")))
    except (ValueError, binascii.Error, RecursionError):
        parts = None
    if not isinstance(parts, list) or not _fits(parts, types):
        raise Invalid(
            "cursor is none of this list; leave it out to start at the beginning",
            "cursor",
        )
    return tuple(parts)


def _fits(parts: list[Any], types: Sequence[type]) -> bool:
    return len(parts) == len(types) and all(
        type(part) is kind and _comparable(part) for part, kind in zip(parts, types, strict=True)
    )


def _comparable(part: Any) -> bool:
    """Whether a database can compare with it: a 64-bit number, text without NUL or surrogates."""
    if isinstance(part, int):
        return -(2**63) <= part < 2**63
    return isinstance(part, str) and part.isprintable()

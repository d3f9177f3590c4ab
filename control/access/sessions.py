"""Browsers that logged in: each has a random cookie, of which only the digest is kept."""

import re
import secrets
from collections.abc import Iterable
from datetime import datetime, timedelta

from sqlalchemy import ColumnElement, delete, or_, select, update
from sqlalchemy.orm import Session

from control.access.scopes import Principal
from control.access.tokens import digest_of
from control.access.users import held_user, principal_of_user
from control.errors import Conflict
from control.sql.database import Transaction
from control.tables import Session as SessionRow
from control.tables import User

IDLE, LONGEST = timedelta(hours=12), timedelta(days=7)
SEEN_EVERY = timedelta(minutes=1)
MOST_PER_USER = 20
"""Whoever logs in once more logs out the browser that was seen longest ago."""

_COOKIE_BYTES = 32
_COOKIE = re.compile(r"[0-9A-Za-z_-]{43}")


def open_session(tx: Transaction, user_name: str, address: str) -> str:
    """The cookie's text, which is kept nowhere. Raises NotFound, Conflict for a disabled user."""
    user = held_user(tx, user_name)
    if user.disabled_at is not None:
        raise Conflict(f"user '{user_name}' is disabled")
    _make_room(tx, user.id)
    cookie = secrets.token_urlsafe(_COOKIE_BYTES)
    row = SessionRow(
        digest=digest_of(cookie),
        user_id=user.id,
        address=address,
        created_at=tx.now,
        seen_at=tx.now,
        expires_at=tx.now + LONGEST,
    )
    tx.session.add(row)
    tx.changed("session.opened", f"user:{user.name}", None, {"address": address})
    return cookie


def close_session(tx: Transaction, cookie: str) -> None:
    """Log out; nothing when there is no such session."""
    query = select(SessionRow, User.name).join(User, User.id == SessionRow.user_id)
    held = query.where(SessionRow.digest == digest_of(cookie)).with_for_update(of=SessionRow)
    found = tx.session.execute(held).first()
    if found is not None:
        row, name = found
        tx.session.delete(row)
        tx.changed("session.closed", f"user:{name}", {"address": row.address}, None)


def principal_of_session(session: Session, cookie: str, now: datetime) -> Principal | None:
    """Who brings this cookie; None when it is unknown or over, or its user is disabled."""
    if not _COOKIE.fullmatch(cookie):
        return None
    query = select(User).join(SessionRow, SessionRow.user_id == User.id)
    user = session.scalar(
        query.where(
            SessionRow.digest == digest_of(cookie), ~is_over(now), User.disabled_at.is_(None)
        )
    )
    return None if user is None else principal_of_user(user)


def record_use(tx: Transaction, cookies: Iterable[str]) -> None:
    """Note that these came just now; rows noted within the last minute are left alone."""
    digests = [digest_of(cookie) for cookie in cookies]
    stale = (SessionRow.seen_at <= tx.now - SEEN_EVERY) & ~is_over(tx.now)
    due = select(SessionRow.digest).where(SessionRow.digest.in_(digests), stale)
    in_order = due.order_by(SessionRow.digest).with_for_update()  # no deadlock between servers
    held = tx.session.scalars(in_order).all()
    tx.session.execute(update(SessionRow).where(SessionRow.digest.in_(held)).values(seen_at=tx.now))


def _make_room(tx: Transaction, user_id: str) -> None:
    of_user = select(SessionRow.digest).where(SessionRow.user_id == user_id)
    latest = tx.session.scalars(of_user.where(~is_over(tx.now)).order_by(SessionRow.seen_at.desc()))
    kept = list(latest)[: MOST_PER_USER - 1]
    unkept = (SessionRow.user_id == user_id) & SessionRow.digest.not_in(kept)
    tx.session.execute(delete(SessionRow).where(unkept))


def is_over(now: datetime) -> ColumnElement[bool]:
    """Holds for a row whose cookie is not accepted any more."""
    return or_(SessionRow.expires_at <= now, SessionRow.seen_at <= now - IDLE)

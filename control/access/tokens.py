"""API tokens: made once, shown once, and known by the SHA-256 of their text ever after."""

import hashlib
import re
import secrets
import string
from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, func, or_, select, update
from sqlalchemy.orm import Session

from control.access.scopes import Principal, Role, parse_scopes, within_role
from control.access.token_terms import expiry, limit
from control.access.users import held_user, user_row
from control.access.views import TokenView
from control.clock import new_id, text_of
from control.errors import Conflict, Invalid, NotFound
from control.sql.database import Transaction
from control.tables import Token, User

PREFIX = "myd_"
SEEN_EVERY = timedelta(minutes=1)
MOST_SCOPES, MOST_PER_USER, MOST_NAME_CHARS = 100, 1000, 100

_BASE62 = string.digits + string.ascii_letters
_SECRET_CHARS, _HINT_CHARS = 40, 8
_TEXT = re.compile(rf"{PREFIX}[0-9A-Za-z]{{{_SECRET_CHARS}}}")
_IDS_AT_ONCE = 500


@dataclass(frozen=True, slots=True)
class NewToken:
    """The only moment at which the `text` is known; show it to its user and forget it."""

    view: TokenView
    text: str = field(repr=False)


def create_token(
    tx: Transaction,
    user_name: str,
    token_name: str,
    scopes: Iterable[str],
    *,
    expires_in_s: float | None = None,
    rate_per_s: float | None = None,
    burst: int | None = None,
) -> NewToken:
    """Expires in 90 days unless said otherwise; 0 is never, for admins. `burst`: requests at once.

    The caller sees to it that nobody makes a token that may more than they may themselves. Raises
    NotFound, Invalid naming the part, Conflict for a disabled user or one with 1000 live tokens.
    """
    user = held_user(tx, user_name)
    _check_name(token_name)
    allowed_scopes = _scopes_within(Role(user.role), scopes)
    terms = limit(rate_per_s, burst)
    ends_at = expiry(tx.now, Role(user.role), expires_in_s)
    _check_may_have_more(tx, user)
    text = PREFIX + "".join(secrets.choice(_BASE62) for _ in range(_SECRET_CHARS))
    row = Token(
        id=new_id(tx.now),
        user_id=user.id,
        name=token_name,
        digest=digest_of(text),
        hint=text[:_HINT_CHARS],
        scopes=allowed_scopes,
        rate_per_s=terms.rate_per_s,
        burst=terms.burst,
        created_at=tx.now,
        expires_at=ends_at,
    )
    tx.session.add(row)
    view = _view(row, user.name)
    tx.changed("token.created", f"token:{row.id}", None, _facts(view))
    tx.desire()
    return NewToken(view, text)


def revoke_token(tx: Transaction, token_id: str) -> TokenView:
    """For ever; nothing is written when it was revoked before. Raises NotFound."""
    row, user_name = _row(tx.session, token_id)
    if row.revoked_at is None:
        before = _facts(_view(row, user_name))
        row.revoked_at = tx.now
        tx.changed("token.revoked", f"token:{row.id}", before, _facts(_view(row, user_name)))
        tx.desire()
    return _view(row, user_name)


def used(tx: Transaction, ids: Iterable[str]) -> None:
    """Note that these were used just now; rows noted within the last minute are left alone."""
    stale = or_(Token.last_used_at.is_(None), Token.last_used_at <= tx.now - SEEN_EVERY)
    all_ids = sorted(set(ids))  # one order for all servers: no deadlock between two batches
    for start in range(0, len(all_ids), _IDS_AT_ONCE):
        some = all_ids[start : start + _IDS_AT_ONCE]
        due = select(Token.id).where(Token.id.in_(some), stale).order_by(Token.id)
        held = tx.session.scalars(due.with_for_update()).all()
        tx.session.execute(update(Token).where(Token.id.in_(held)).values(last_used_at=tx.now))


def list_tokens(session: Session, user_name: str | None = None) -> list[TokenView]:
    """Newest first, the revoked ones too; of one user or of all. Raises NotFound."""
    query = select(Token, User.name).join(User, User.id == Token.user_id)
    if user_name is not None:
        query = query.where(Token.user_id == user_row(session, user_name).id)
    found = session.execute(query.order_by(Token.id.desc()))
    return [_view(row, name) for row, name in found]


def get_token(session: Session, token_id: str) -> TokenView:
    """Raises NotFound."""
    return _view(*_row(session, token_id))


def principal_of(session: Session, text: str, now: datetime) -> Principal | None:
    """Who brings this text; None for one that is unknown, revoked, expired or of a disabled user.

    The digest is looked up, never the text compared: how long it takes says nothing.
    """
    if not _TEXT.fullmatch(text):
        return None
    query = select(Token, User).join(User, User.id == Token.user_id)
    rows = session.execute(query.where(Token.digest == digest_of(text), live(now)))
    for row, user in rows:
        scopes = parse_scopes(row.scopes)
        return Principal(principal_id(user.name, row.id), Role(user.role), scopes, row.id)
    return None


def principal_id(user: str, token_id: str) -> str:
    """Who a token is: its user first, because that is what an audit is read for."""
    return f"user:{user}/token:{token_id}"


def live(now: datetime) -> ColumnElement[bool]:
    """Holds for a Token joined with its User while the token can be used."""
    unexpired = or_(Token.expires_at.is_(None), Token.expires_at > now)
    return Token.revoked_at.is_(None) & unexpired & User.disabled_at.is_(None)


def digest_of(text: str) -> str:
    """SHA-256 in hex: enough for 238 random bits, which nobody can guess their way to."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _check_name(name: str) -> None:
    if not (1 <= len(name) <= MOST_NAME_CHARS and name.isprintable() and name == name.strip()):
        raise Invalid(
            f"{name!r:.120} cannot name a token: 1 to {MOST_NAME_CHARS} printable characters",
            "name",
        )


def _scopes_within(role: Role, texts: Iterable[str]) -> list[str]:
    parsed = parse_scopes(texts)
    if len(parsed) > MOST_SCOPES:
        raise Invalid(f"a token has at most {MOST_SCOPES} scopes, not {len(parsed)}", "scopes")
    within_role(role, parsed)
    return [str(scope) for scope in parsed]


def _check_may_have_more(tx: Transaction, user: User) -> None:
    if user.disabled_at is not None:
        raise Conflict(f"user '{user.name}' is disabled; enable it before it gets a token")
    count = select(func.count()).select_from(Token).join(User, User.id == Token.user_id)
    if (
        tx.session.scalars(count.where(Token.user_id == user.id, live(tx.now))).one()
        >= MOST_PER_USER
    ):
        raise Conflict(f"user '{user.name}' has {MOST_PER_USER} live tokens; revoke some first")


def _row(session: Session, token_id: str) -> tuple[Token, str]:
    query = select(Token, User.name).join(User, User.id == Token.user_id)
    if token_id.isascii() and token_id.isalnum():
        for row, name in session.execute(query.where(Token.id == token_id)):
            return row, name
    raise NotFound(f"there is no token {token_id!r:.80}")


def _facts(view: TokenView) -> dict[str, Any]:
    names = ("user", "name", "scopes", "rate_per_s", "burst", "expires_at", "revoked_at")
    found = msgspec.structs.asdict(view)
    return {name: _fact(found[name]) for name in names}


def _view(row: Token, user_name: str) -> TokenView:
    return TokenView(
        id=row.id,
        user=user_name,
        name=row.name,
        hint=row.hint,
        scopes=tuple(row.scopes),
        rate_per_s=row.rate_per_s,
        burst=row.burst,
        created_at=row.created_at,
        expires_at=row.expires_at,
        revoked_at=row.revoked_at,
        last_used_at=row.last_used_at,
    )


def _fact(value: Any) -> Any:
    return text_of(value) if isinstance(value, datetime) else value

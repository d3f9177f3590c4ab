"""People: made, changed, disabled, and recognised by their password."""

import re
from typing import Any

from sqlalchemy import delete, or_, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from control.access.passwords import PasswordHash, hash_of_new, hash_password, is_outdated, matches
from control.access.scopes import Principal, Role
from control.access.views import UserView
from control.clock import new_id
from control.errors import Conflict, Invalid, NotFound
from control.sql.database import Transaction, expect_revision
from control.tables import Session as Login
from control.tables import Token, User

_NAME = re.compile(r"[a-z][a-z0-9._-]{0,62}")
_ENABLED_ADMIN = (User.role == Role.ADMIN.value) & User.disabled_at.is_(None)


def create_user(tx: Transaction, name: str, role: str, password: str | None = None) -> UserView:
    """A password that is not `PasswordHash` yet is hashed here, while other changes wait. Raises
    Invalid naming the part that cannot be, Conflict when the name is taken."""
    if not _NAME.fullmatch(name):
        raise Invalid(
            f"{name!r:.80} is no user name: a lower-case letter first, then up to 62 of "
            "a-z 0-9 . _ -",
            "name",
        )
    row = User(
        id=new_id(tx.now),
        name=name,
        role=parse_role(role).value,
        password_hash=None if password is None else _hashed(name, password),
        created_at=tx.now,
        revision=1,
    )
    tx.session.add(row)
    try:
        tx.session.flush()
    except IntegrityError:
        raise Conflict(f"there is a user '{name}' already") from None
    tx.changed("user.created", f"user:{name}", None, _facts(row))
    return _view(row)


def change_user(
    tx: Transaction,
    name: str,
    *,
    role: str | None = None,
    password: str | None = None,
    disabled: bool | None = None,
    expected: int | None = None,
) -> UserView:
    """Change what is given; nothing is written when it is so already.

    A new password logs the user out everywhere; disabling also revokes all tokens, for ever.
    `expected` is the revision the caller saw. Raises NotFound, Invalid, and Conflict when the
    revision differs or no enabled admin would be left.
    """
    row, other_admins = _row_and_other_admins(tx, name)
    expect_revision(row.revision, expected, f"user '{name}'")
    before = _facts(row)
    if role is not None:
        row.role = parse_role(role).value
    if disabled is not None and disabled != before["disabled"]:
        row.disabled_at = tx.now if disabled else None
    if not other_admins and _administers(before) and not _administers(_facts(row)):
        raise Conflict(
            f"'{name}' is the last enabled admin; make somebody else admin before this one is"
            " disabled or gets another role"
        )
    after = _facts(row)
    if password is not None:
        row.password_hash = _hashed(name, password)
        after["password"] = "changed"
    if after != before:
        _record(tx, row, before, after)
    return _view(row)


def _record(tx: Transaction, row: User, before: dict[str, Any], after: dict[str, Any]) -> None:
    row.revision += 1
    ended: dict[str, Any] = {}
    if after["disabled"] and not before["disabled"]:
        ended["tokens_revoked"] = _revoke_tokens(tx, row.id)
    if after["disabled"] or after["password"] == "changed":
        ended["sessions_ended"] = _end_sessions(tx, row.id)
    tx.changed("user.changed", f"user:{row.name}", before, after, **ended)
    if any(after[what] != before[what] for what in ("role", "disabled")):
        tx.desire()


def refresh_password(tx: Transaction, name: str, password: str) -> bool:
    """Hash a password that was just found right anew, if its hash is of an older form; whether.

    Raises NotFound, TooMany.
    """
    row = held_user(tx, name)
    if row.password_hash is None or not is_outdated(row.password_hash):
        return False
    if not matches(row.password_hash, password):
        return False  # it was changed meanwhile
    row.password_hash = hash_password(password)
    facts = _facts(row)
    tx.changed("user.password_rehashed", f"user:{name}", facts, facts)
    return True


def check_password(session: Session, name: str, password: str) -> Principal | None:
    """Who logs in; None, after the same time, for a wrong password, name, or a disabled user.

    Takes some 50 ms of a processor and 64 MiB; ask `rates.Failures` first. Raises TooMany.
    """
    row = find_user(session, name)
    usable = row is not None and row.disabled_at is None
    hashed = row.password_hash if row is not None and usable else None
    if not matches(hashed, password) or row is None:
        return None
    return principal_of_user(row)


def has_outdated_password(session: Session, name: str) -> bool:
    """Whether `refresh_password` has something to do."""
    row = find_user(session, name)
    return row is not None and row.password_hash is not None and is_outdated(row.password_hash)


def list_users(session: Session) -> list[UserView]:
    """All, by name, in the order of Python's texts whatever the database's collation."""
    return sorted(map(_view, session.scalars(select(User))), key=lambda view: view.name)


def get_user(session: Session, name: str) -> UserView:
    """Raises NotFound."""
    return _view(user_row(session, name))


def has_admin(session: Session) -> bool:
    """Whether anybody could log in and administer this server: an account without a password,
    which lives by its tokens alone, cannot."""
    able = select(User.id).where(_ENABLED_ADMIN, User.password_hash.is_not(None))
    return session.scalar(able.limit(1)) is not None


def user_row(session: Session, name: str) -> User:
    """Raises NotFound."""
    row = find_user(session, name)
    if row is None:
        raise NotFound(f"there is no user {name!r:.80}")
    return row


def held_user(tx: Transaction, name: str) -> User:
    """As `user_row`; nobody disables or changes the user until the commit."""
    user_row(tx.session, name)
    by_name = select(User).where(User.name == name).with_for_update()
    return tx.session.scalars(by_name.execution_options(populate_existing=True)).one()


def find_user(session: Session, name: str) -> User | None:
    if not _NAME.fullmatch(name):
        return None  # PostgreSQL would not even take some texts that are no names
    return session.scalar(select(User).where(User.name == name))


def principal_of_user(row: User) -> Principal:
    return Principal(f"user:{row.name}", Role(row.role))


def parse_role(text: str) -> Role:
    """Raises Invalid naming the roles."""
    try:
        return Role(text)
    except ValueError:
        raise Invalid(f"{text!r:.80} is no role; give {', '.join(Role)}", "role") from None


def _row_and_other_admins(tx: Transaction, name: str) -> tuple[User, int]:
    """Locked together, in one order: two admins cannot remove each other at the same time."""
    user_row(tx.session, name)
    those = select(User).where(or_(User.name == name, _ENABLED_ADMIN)).order_by(User.id)
    locked = those.with_for_update().execution_options(populate_existing=True)
    rows = tx.session.scalars(locked).all()
    found = next(row for row in rows if row.name == name)
    others = [row for row in rows if row is not found and row.role == Role.ADMIN]
    return found, len(others)


def _administers(facts: dict[str, Any]) -> bool:
    return facts["role"] == Role.ADMIN and not facts["disabled"]


def _hashed(name: str, password: str) -> PasswordHash:
    return password if isinstance(password, PasswordHash) else hash_of_new(name, password)


def _facts(row: User) -> dict[str, Any]:
    return {
        "role": row.role,
        "disabled": row.disabled_at is not None,
        "password": "none" if row.password_hash is None else "set",
    }


def _view(row: User) -> UserView:
    return UserView(
        name=row.name,
        role=Role(row.role),
        has_password=row.password_hash is not None,
        created_at=row.created_at,
        disabled_at=row.disabled_at,
        revision=row.revision,
    )


def _end_sessions(tx: Transaction, user_id: str) -> int:
    """Log out every browser of a user that is disabled or gets another password; how many."""
    ended = delete(Login).where(Login.user_id == user_id).returning(Login.digest)
    return len(tx.session.scalars(ended).all())


def _revoke_tokens(tx: Transaction, user_id: str) -> list[str]:
    """The ids of those that were not revoked before; they stay so for ever."""
    live = (Token.user_id == user_id) & Token.revoked_at.is_(None)
    ids = list(tx.session.scalars(select(Token.id).where(live).order_by(Token.id)))
    tx.session.execute(update(Token).where(live).values(revoked_at=tx.now))
    return ids

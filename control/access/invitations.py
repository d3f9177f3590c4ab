"""One-time links that make an account: the first administrator's is printed at the first start."""

import secrets
from datetime import timedelta

from sqlalchemy import delete, select

from control.access.scopes import Role
from control.access.tokens import digest_of
from control.access.users import create_user, has_admin
from control.access.views import UserView
from control.errors import Conflict, NotFound
from control.sql.database import Transaction
from control.tables import Invitation

LASTS = timedelta(days=1)
_CODE_BYTES = 24


def first_link_code(tx: Transaction) -> str | None:
    """A code for the first administrator, in place of any unused one; None once there is an admin.

    Kept only as its digest: print it now or never.
    """
    if has_admin(tx.session):
        return None
    # First the event, which holds the counter: of two servers that start at once, one waits here.
    tx.changed("invitation.created", "invitation:first", None, {"role": Role.ADMIN.value})
    tx.session.execute(delete(Invitation).where(Invitation.used_at.is_(None)))
    code = secrets.token_urlsafe(_CODE_BYTES)
    row = Invitation(
        digest=digest_of(code),
        role=Role.ADMIN.value,
        created_at=tx.now,
        expires_at=tx.now + LASTS,
    )
    tx.session.add(row)
    return code


def accept(tx: Transaction, code: str, name: str, password: str) -> UserView:
    """Make the account and spend the code, or neither.

    Raises NotFound for a code that is unknown, used or too old, Conflict once there is an admin,
    who may have been made in another way, and what `create_user` raises.
    """
    by_code = select(Invitation).where(Invitation.digest == digest_of(code)).with_for_update()
    row = tx.session.scalar(by_code)
    if row is None or row.used_at is not None or row.expires_at <= tx.now:
        raise NotFound(
            "this link was used, replaced or is more than a day old; while there is no admin,"
            " `modelyard login-link` creates a new one"
        )
    if has_admin(tx.session):
        raise Conflict("there is an admin by now, and this link is no longer valid; ask them")
    user = create_user(tx, name, row.role, password)
    row.used_at = tx.now
    tx.changed("invitation.accepted", f"user:{name}", None, {"role": row.role})
    return user

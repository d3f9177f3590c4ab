"""Rows of access that nobody can use any more, removed after a while; the audit still has them."""

from datetime import timedelta

from sqlalchemy import delete, or_

from control.access.sessions import is_over
from control.sql.database import Transaction
from control.tables import Invitation, Session, Token

KEPT = timedelta(days=90)
"""How long a revoked or expired token is still listed."""


def sweep(tx: Transaction) -> None:
    """Call it now and then; once an hour is plenty."""
    long_ago = tx.now - KEPT
    dead = or_(Token.revoked_at <= long_ago, Token.expires_at <= long_ago)
    tx.session.execute(delete(Token).where(dead))
    tx.session.execute(delete(Session).where(is_over(tx.now)))
    tx.session.execute(delete(Invitation).where(Invitation.expires_at <= tx.now))

"""What ends at once when a user is disabled or gets another password."""

from sqlalchemy import delete, select, update

from control.sql.database import Transaction
from control.tables import Session, Token


def end_sessions(tx: Transaction, user_id: str) -> int:
    """How many browsers are logged out by it."""
    ended = delete(Session).where(Session.user_id == user_id).returning(Session.digest)
    return len(tx.session.scalars(ended).all())


def revoke_tokens(tx: Transaction, user_id: str) -> list[str]:
    """The ids of those that were not revoked before; they stay so for ever."""
    live = (Token.user_id == user_id) & Token.revoked_at.is_(None)
    ids = list(tx.session.scalars(select(Token.id).where(live).order_by(Token.id)))
    tx.session.execute(update(Token).where(live).values(revoked_at=tx.now))
    return ids

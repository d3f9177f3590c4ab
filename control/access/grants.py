"""The tokens that gateways are to know, as they are at one moment."""

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from control.access.tokens import live, principal_id
from control.desired import TokenGrant
from control.tables import Token, User


def grants(session: Session, now: datetime) -> tuple[TokenGrant, ...]:
    """Every live token's, by id. One that expires later says when; the gateway sees to that."""
    query = select(Token, User).join(User, User.id == Token.user_id).where(live(now))
    found = session.execute(query.order_by(Token.id))
    return tuple(_grant(row, user) for row, user in found)


def _grant(row: Token, user: User) -> TokenGrant:
    return TokenGrant(
        digest=row.digest,
        token_id=row.id,
        principal=principal_id(user.name, row.id),
        role=user.role,
        scopes=tuple(row.scopes),
        expires=0.0 if row.expires_at is None else row.expires_at.timestamp(),
        rate_per_s=row.rate_per_s or 0.0,
        burst=row.burst or 0,
    )

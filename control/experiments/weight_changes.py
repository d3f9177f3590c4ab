"""Whether a rollout has moved the weights that an experiment's shares are held against."""

from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from control.rollout_tables import Rollout


def weights_moved(
    session: Session, route: str, started_at: datetime | None, stopped_at: datetime | None
) -> bool:
    """By a rollout of the route that was under way while units were counted."""
    if started_at is None:
        return False
    during = Rollout.finished_at.is_(None) | (Rollout.finished_at > started_at)
    if stopped_at is not None:
        during &= Rollout.created_at < stopped_at
    found = select(Rollout.id).where(Rollout.name == route, during)
    return session.scalar(found.limit(1)) is not None

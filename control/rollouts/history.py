"""What became of a model's versions: which were rolled back, and have not been stable since."""

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from control.clock import Moment
from control.rollout_tables import Rollout
from control.rollouts.state import Phase

LOOK_BACK = 200
"""Rollouts of a name that are looked at, the newest ones."""


class RolledBackVersion(msgspec.Struct, frozen=True):
    """A version that lost its traffic, and has not got it again since. `rollout` tells of it."""

    version: int
    at: Moment
    reason: str
    rollout: str


def history_of(session: Session, model: str) -> list[Rollout]:
    """The rollouts of a model under its own name, newest first."""
    wanted = select(Rollout).where(Rollout.name == model, Rollout.model == model)
    return list(session.scalars(wanted.order_by(Rollout.id.desc()).limit(LOOK_BACK)))


def rolled_back(session: Session, model: str) -> list[RolledBackVersion]:
    """Versions that were rolled back and did not become the stable version since."""
    found: dict[int, RolledBackVersion] = {}
    for row in reversed(history_of(session, model)):
        if row.finished_at is None:
            continue
        if row.phase == Phase.HEALTHY:
            found.pop(row.candidate, None)
        version, reason = _lost(row)
        if version is not None:
            found[version] = RolledBackVersion(version, row.finished_at, reason, row.id)
    return list(found.values())


def _lost(row: Rollout) -> tuple[int | None, str]:
    """The version that an ended rollout took the traffic from because it was bad, and why."""
    rollback = row.state.get("rollback", "")
    if row.phase == Phase.HEALTHY and rollback:
        return row.stable, f"rolled back to version {row.candidate}, {rollback}"
    if row.phase == Phase.DEGRADED and not rollback:
        return row.candidate, row.reason
    return None, ""

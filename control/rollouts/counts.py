"""Counts of every server for a rollout: each gateway keeps its own rows, and they merge on read."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from control.errors import NotFound
from control.rollout_tables import Rollout, RolloutWindow
from control.rollouts.arms import RolloutTotals
from control.rollouts.assignment_counts import AssignmentCount, mismatch
from control.sql.database import Transaction

KEEP_DAYS = 30
MIB = 2**20

STALE_S = 15.0
"""A live server that has sent no counts for longer is missing from the counts."""


@dataclass(frozen=True, slots=True)
class GatewayReport:
    """What a gateway process has counted so far. `crashes`: of the candidate's workers;
    `resident_bytes`: of the largest of these, 0 where there are none; `in_flight`: requests that
    the candidate has accepted and not answered; `assignments`: units shared out, by weight."""

    arms: RolloutTotals
    crashes: int = 0
    resident_bytes: int = 0
    in_flight: int = 0
    assignments: tuple[AssignmentCount, ...] = ()


@dataclass(frozen=True, slots=True)
class RolloutReading:
    """All servers together. `problem` says why `arms` is not everything, "" when it is; `mismatch`
    that the arms did not get the units they were meant to get."""

    arms: RolloutTotals = field(default_factory=RolloutTotals)
    problem: str = ""
    crashes: int = 0
    memory_ratio: float | None = None
    in_flight: int = 0
    mismatch: str = ""


def record(
    tx: Transaction, rollout_id: str, server_id: str, process: str, report: GatewayReport
) -> bool:
    """Keep what a gateway says in place of what it said before; say it again every few seconds
    even when nothing has changed, until it is True: the rollout has ended. Raises NotFound."""
    rollout = tx.session.get(Rollout, rollout_id)
    if rollout is None:
        raise NotFound(f"there is no rollout '{rollout_id:.80}'")
    row = tx.session.get(RolloutWindow, (rollout_id, server_id, process))
    if row is None:
        row = RolloutWindow(rollout_id=rollout_id, server_id=server_id, process=process)
        tx.session.add(row)
    row.arms = {
        "arms": report.arms.as_list(),
        "lots": [list(assignment) for assignment in report.assignments],
    }
    row.crashes, row.in_flight = report.crashes, report.in_flight
    declared = rollout.plan.get("memory_mib", 0) * MIB
    resident = report.resident_bytes
    row.memory_ratio = resident / declared if declared and resident else None
    row.at = tx.now
    return rollout.finished_at is not None


def read(
    session: Session, rollout_id: str, alive: Collection[str], now: datetime
) -> RolloutReading:
    """`alive`: ids of the servers that must have told something lately."""
    rollout = session.get_one(Rollout, rollout_id)
    found = select(RolloutWindow).where(RolloutWindow.rollout_id == rollout_id)
    rows = session.scalars(found.order_by(RolloutWindow.at)).all()
    arms = RolloutTotals()
    for row in rows:
        arms = arms + RolloutTotals.from_list(row.arms["arms"])
    latest = [
        row for row in {row.server_id: row for row in rows}.values() if row.server_id in alive
    ]
    ratios = [row.memory_ratio for row in latest if row.memory_ratio is not None]
    return RolloutReading(
        arms,
        _problem(latest, alive, now),
        sum(row.crashes for row in rows),
        max(ratios, default=None),
        sum(row.in_flight for row in latest),
        mismatch([list(_assignments(row, rollout)) for row in rows]),
    )


def forget(tx: Transaction, keep_days: int = KEEP_DAYS) -> int:
    """Remove what was counted for rollouts that ended longer ago; how many rows."""
    since = tx.now - timedelta(days=keep_days)
    ended = select(Rollout.id).where(Rollout.finished_at < since)
    old = delete(RolloutWindow).where(RolloutWindow.rollout_id.in_(ended))
    return len(tx.session.execute(old.returning(RolloutWindow.rollout_id)).all())


def _assignments(row: RolloutWindow, rollout: Rollout) -> Iterator[AssignmentCount]:
    """Of this try, not of one that was rolled back."""
    assignments = (AssignmentCount(*assignment) for assignment in row.arms.get("lots", ()))
    return (assignment for assignment in assignments if assignment.salt == rollout.salt)


def _problem(latest: Sequence[RolloutWindow], alive: Collection[str], now: datetime) -> str:
    oldest = now - timedelta(seconds=STALE_S)
    silent = sorted(set(alive) - {row.server_id for row in latest if row.at >= oldest})
    if not alive:
        return "no server is alive"
    return f"{', '.join(silent)} sent no counts for {STALE_S:g} s" if silent else ""

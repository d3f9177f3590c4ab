"""Aliases and routes that a server has not put into force yet, or cannot, in its own words."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

from sqlalchemy import select
from sqlalchemy.orm import Session

from control.sql.database import Transaction
from control.tables import PendingChange
from control.text import stored
from control.views import PendingView

LONGEST_SUBJECT, LONGEST_REASON = 512, 4096

Row = tuple[str, str]
"""Subject ("alias m@champion", "route chat") and reason."""


def record(tx: Transaction, server_id: str, rows: Iterable[Row]) -> int:
    """Take what a server says as all that is pending on it; how many subjects differ.

    Each difference is an event: "alias.pending", or "alias.in_force" for what it no longer
    mentions; the same of routes.
    """
    reasons = _by_subject(rows)
    mine = select(PendingChange).where(PendingChange.server_id == server_id)
    before = {row.subject: row for row in tx.session.scalars(mine)}
    changed = [
        subject
        for subject, reason in reasons.items()
        if subject not in before or before[subject].reason != reason
    ]
    gone = before.keys() - reasons.keys()
    if not changed and not gone:
        return 0
    tx.alone()
    for subject in changed:
        _take(tx, server_id, before.get(subject), subject, reasons[subject])
    for subject in sorted(gone):
        tx.session.delete(before[subject])
        tx.happened(*_event(subject, "in_force"), server=server_id)
    return len(changed) + len(gone)


def by_subject(session: Session) -> Mapping[str, tuple[PendingView, ...]]:
    """All that is pending, of each subject in the order of servers."""
    found = defaultdict(list)
    for row in session.scalars(select(PendingChange).order_by(PendingChange.server_id)):
        found[row.subject].append(PendingView(row.server_id, row.reason, row.at))
    return {subject: tuple(views) for subject, views in found.items()}


def _by_subject(rows: Iterable[Row]) -> dict[str, str]:
    """A route may wait for several arms."""
    found: dict[str, list[str]] = defaultdict(list)
    for subject, reason in rows:
        found[stored(subject, LONGEST_SUBJECT)].append(reason)
    return {name: stored("; ".join(reasons), LONGEST_REASON) for name, reasons in found.items()}


def _take(
    tx: Transaction, server_id: str, row: PendingChange | None, subject: str, reason: str
) -> None:
    if row is None:
        row = PendingChange(server_id=server_id, subject=subject, at=tx.now)
        tx.session.add(row)
    row.reason = reason
    tx.happened(*_event(subject, "pending"), server=server_id, reason=reason)


def _event(subject: str, what: str) -> tuple[str, str]:
    kind, _, name = subject.partition(" ")
    return f"{kind}.{what}", f"{kind}:{name}"[:255]

"""The room that time series take in the database, and how it is kept within its limit."""

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from control.series.tables import SeriesChunkRow, SeriesWindowRow
from control.sql.database import Transaction


@dataclass(frozen=True, slots=True)
class SeriesStorage:
    """`size_bytes`: of the packed points; `oldest`: seconds since the epoch, None of nothing."""

    size_bytes: int
    oldest: int | None


def storage(session: Session) -> SeriesStorage:
    parts = [_sum(session, row, at) for row, at in _TABLES]
    oldest = [begins for _, begins in parts if begins is not None]
    return SeriesStorage(sum(size for size, _ in parts), min(oldest, default=None))


_TABLES = (
    (SeriesWindowRow, SeriesWindowRow.at),
    (SeriesChunkRow, SeriesChunkRow.start),
)


def _sum(
    session: Session, row: type[SeriesWindowRow | SeriesChunkRow], at: object
) -> tuple[int, int | None]:
    size = func.coalesce(func.sum(func.length(row.payload)), 0)
    found = session.execute(select(size, func.min(at))).one()
    return int(found[0]), found[1]


def shrink(tx: Transaction, limit_bytes: int) -> int:
    """Remove the oldest chunks until the series fit, but never the newest stretch of a level of any
    server, from which the next is made; the bytes removed."""
    excess = storage(tx.session).size_bytes - limit_bytes
    removed = 0
    for level, server_id, start, size in _stretches(tx.session) if excess > 0 else ():
        if removed >= excess:
            break
        tx.session.execute(
            delete(SeriesChunkRow).where(
                SeriesChunkRow.level == level,
                SeriesChunkRow.start == start,
                SeriesChunkRow.server_id == server_id,
            )
        )
        removed += size
    return removed


def _stretches(session: Session) -> Sequence[tuple[int, str, int, int]]:
    """Level, server, start and bytes of all but the newest of each server's level, the oldest
    first."""
    level, server, start = SeriesChunkRow.level, SeriesChunkRow.server_id, SeriesChunkRow.start
    size = func.sum(func.length(SeriesChunkRow.payload))
    query = select(level, server, start, size).group_by(level, server, start).order_by(start)
    rows = [(row[0], row[1], row[2], int(row[3])) for row in session.execute(query)]
    newest = {(level, server): start for level, server, start, _ in rows}
    return [row for row in rows if newest[row[0], row[1]] != row[2]]

"""Windows into the database, chunks made of them, and what is too old out of it."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from sqlalchemy import delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from control.series.levels import CHUNKED, MINUTES, WINDOWS, SeriesLevel, sealable
from control.series.packing import ChunkPoint, pack_chunk, pack_rows, unpack_chunk, unpack_rows
from control.series.points import SeriesPoint, SeriesWindow, coarser, one_after_another
from control.series.tables import SeriesChunkRow, SeriesWindowRow
from control.sql.database import Transaction

SEALED = ""
"""The subject of a chunk that says that its stretch is complete."""


def store(tx: Transaction, *windows: SeriesWindow) -> None:
    """Keep windows, and forget those of their server that are too old and sealed; one that is there
    already is left as it is, also one that another transaction is about to commit: a window is sent
    again while the database does not answer."""
    rows = [
        {"server_id": one.server, "at": one.at, "boot": one.boot, "payload": pack_rows(one.rows)}
        for one in windows
    ]
    _insert_missing(tx.session, SeriesWindowRow, rows)
    for server_id in {one.server for one in windows}:
        _forget_windows(tx, server_id)


def _insert_missing(
    session: Session, table: type[SeriesWindowRow | SeriesChunkRow], rows: list[dict[str, Any]]
) -> None:
    """Insert the rows whose keys are not there."""
    on_sqlite = session.get_bind().dialect.name == "sqlite"
    statement = (sqlite if on_sqlite else postgresql).insert(table)
    session.execute(statement.on_conflict_do_nothing(), rows)


def _forget_windows(tx: Transaction, server_id: str) -> None:
    sealed = last_sealed(tx.session, MINUTES, server_id)
    if sealed is None:
        return
    before = min(int(tx.now.timestamp()) - WINDOWS.keep_s, sealed + MINUTES.span_s)
    mine = SeriesWindowRow.server_id == server_id
    tx.session.execute(delete(SeriesWindowRow).where(mine, SeriesWindowRow.at < before))


def seal(tx: Transaction, server_id: str) -> int:
    """Make the chunks of this server's oldest stretch that is over, of each level; how many
    stretches that were. Call it until it is 0."""
    now = int(tx.now.timestamp())
    return sum(_seal_next(tx, level, server_id, now) for level in CHUNKED)


def _seal_next(tx: Transaction, level: SeriesLevel, server_id: str, now: int) -> int:
    oldest = _oldest(tx.session, level, server_id)
    start = None if oldest is None else sealable(level, oldest, now)
    if start is None:
        return 0
    until = start + level.span_s
    if level is MINUTES:
        points = window_points(tx.session, server_id, start, until)
    else:
        unsealed = _oldest(tx.session, MINUTES, server_id)
        if unsealed is not None and unsealed < until:
            return 0
        points = minute_points(tx.session, server_id, start, until)
    rows = [
        {"subject": subject, "payload": pack_chunk(chunk)}
        for subject, chunk in _chunks(points, level, start)
    ]
    rows.append({"subject": SEALED, "payload": b""})
    common = {"level": level.step_s, "start": start, "server_id": server_id}
    _insert_missing(tx.session, SeriesChunkRow, [common | row for row in rows])
    return 1


TimedPoint = tuple[str, int, SeriesPoint]
"""The key of a subject, seconds since the epoch, and what was counted from then on."""


def window_points(session: Session, server_id: str, since: int, until: int) -> Iterator[TimedPoint]:
    at = SeriesWindowRow.at
    wanted = (
        select(at, SeriesWindowRow.payload)
        .where(SeriesWindowRow.server_id == server_id, at >= since, at < until)
        .order_by(at)
    )
    for when, payload in session.execute(wanted, execution_options={"yield_per": 100}):
        for row in unpack_rows(payload):
            yield row.subject.key, when, row.point


def minute_points(session: Session, server_id: str, since: int, until: int) -> Iterator[TimedPoint]:
    start = SeriesChunkRow.start
    wanted = (
        select(SeriesChunkRow.subject, start, SeriesChunkRow.payload)
        .where(
            SeriesChunkRow.level == MINUTES.step_s,
            start >= since,
            start < until,
            SeriesChunkRow.server_id == server_id,
            SeriesChunkRow.subject != SEALED,
        )
        .order_by(start)
    )
    for subject, begins, payload in session.execute(wanted, execution_options={"yield_per": 100}):
        for one in unpack_chunk(payload):
            yield subject, begins + one.number * MINUTES.step_s, one.point


def _chunks(
    points: Iterable[TimedPoint], level: SeriesLevel, start: int
) -> Iterator[tuple[str, Sequence[ChunkPoint]]]:
    found: dict[str, dict[int, list[SeriesPoint]]] = defaultdict(lambda: defaultdict(list))
    for subject, at, point in points:
        found[subject][(at - start) // level.step_s].append(point)
    for subject, numbered in found.items():
        yield (
            subject,
            [
                ChunkPoint(number, coarser(one_after_another(several)))
                for number, several in numbered.items()
            ],
        )


def forget_chunks(tx: Transaction) -> None:
    """Of every server, also of one that is gone, what is older than it is kept."""
    now = int(tx.now.timestamp())
    for level in CHUNKED:
        tx.session.execute(
            delete(SeriesChunkRow).where(
                SeriesChunkRow.level == level.step_s,
                SeriesChunkRow.start < now - level.keep_s - level.span_s,
            )
        )
    tx.session.execute(delete(SeriesWindowRow).where(SeriesWindowRow.at < now - MINUTES.keep_s))


def last_sealed(session: Session, level: SeriesLevel, server_id: str) -> int | None:
    """The start of the last stretch of which all chunks of this level are there."""
    return session.scalar(
        select(SeriesChunkRow.start)
        .where(
            SeriesChunkRow.level == level.step_s,
            SeriesChunkRow.subject == SEALED,
            SeriesChunkRow.server_id == server_id,
        )
        .order_by(SeriesChunkRow.start.desc())
        .limit(1)
    )


def _oldest(session: Session, level: SeriesLevel, server_id: str) -> int | None:
    """Of what chunks of this level are to be made of."""
    sealed = last_sealed(session, level, server_id)
    since = 0 if sealed is None else sealed + level.span_s
    if level is MINUTES:
        mine = SeriesWindowRow.server_id == server_id
        return session.scalar(
            select(func.min(SeriesWindowRow.at)).where(mine, SeriesWindowRow.at >= since)
        )
    return session.scalar(
        select(SeriesChunkRow.start)
        .where(
            SeriesChunkRow.level == MINUTES.step_s,
            SeriesChunkRow.start >= since,
            SeriesChunkRow.server_id == server_id,
        )
        .order_by(SeriesChunkRow.start)
        .limit(1)
    )

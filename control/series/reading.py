"""Series for charts: points of subjects between two moments, from whichever levels have them."""

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from control.series.levels import MINUTES, QUARTERS, SeriesLevel, level_for, step_for
from control.series.packing import unpack_chunk, unpack_subjects
from control.series.points import (
    SeriesPoint,
    SeriesSubject,
    one_after_another,
    side_by_side,
    subject_of,
)
from control.series.recording import SEALED, last_sealed
from control.series.tables import SeriesChunkRow, SeriesWindowRow

Wanted = Callable[[SeriesSubject], str | None]
"""The name of the series that a subject's points belong to; None for one that is left out."""


@dataclass(frozen=True, slots=True)
class SeriesRange:
    """`since` and `until` are seconds since the epoch, multiples of `step_s`."""

    since: int
    until: int
    step_s: int
    level: SeriesLevel

    @property
    def starts(self) -> range:
        """Of the points."""
        return range(self.since, self.until, self.step_s)


def range_of(since: int, until: int, now: int, most_points: int) -> SeriesRange:
    """At most `most_points` points and one; whole steps, so that one follows the other."""
    level = level_for(since, until, now, most_points)
    step_s = step_for(since, until, level, most_points)
    first = since - since % step_s
    return SeriesRange(first, max(first + step_s, until - until % step_s), step_s, level)


LEAST_OPEN_STEP_S, LEAST_OPEN_S = 600, 60
"""A point of at least so many seconds is told before it is over, once so many of it have passed:
half a day is too much to wait for."""


def with_open_point(within: SeriesRange, until: int) -> tuple[SeriesRange, int]:
    """The range with the point that is not over yet, and how much of it has passed; the same and 0
    where that is little, or will be over soon."""
    passed = until - within.until
    if within.step_s < LEAST_OPEN_STEP_S or passed < LEAST_OPEN_S:
        return within, 0
    return replace(within, until=within.until + within.step_s), passed


def read(
    session: Session, within: SeriesRange, wanted: Wanted, server: str = ""
) -> dict[str, dict[int, SeriesPoint]]:
    """The points of each wanted series by the moment in which they begin; where nothing was counted
    there is none. `server`: of that one alone; else of all together."""
    found: dict[tuple[str, int], dict[str, list[SeriesPoint]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for server_id in _servers(session, within, server):
        of_one: dict[tuple[str, str, int], list[SeriesPoint]] = defaultdict(list)
        for name, key, at, point in _points(session, within, wanted, server_id):
            start = at - (at - within.since) % within.step_s
            of_one[name, key, start].append(point)
        for (name, _, start), points in of_one.items():
            found[name, start][server_id].append(one_after_another(points))
    series: dict[str, dict[int, SeriesPoint]] = defaultdict(dict)
    for (name, start), by_server in sorted(found.items()):
        series[name][start] = side_by_side([one for many in by_server.values() for one in many])
    return dict(series)


def _servers(session: Session, within: SeriesRange, server: str) -> list[str]:
    if server:
        return [server]
    at, start = SeriesWindowRow.at, SeriesChunkRow.start
    windows = select(SeriesWindowRow.server_id).where(at >= within.since, at < within.until)
    chunks = select(SeriesChunkRow.server_id).where(
        start >= within.since - QUARTERS.span_s,
        start < within.until,
        SeriesChunkRow.subject == SEALED,
    )
    return sorted({*session.scalars(windows.distinct()), *session.scalars(chunks.distinct())})


_NamedPoint = tuple[str, str, int, SeriesPoint]
"""The name of its series, the key of its subject, when it begins."""


def _points(
    session: Session, within: SeriesRange, wanted: Wanted, server_id: str
) -> Iterator[_NamedPoint]:
    """Of one server. Where a level has not been sealed yet, the level below goes on."""
    since = within.since
    for level in (QUARTERS, MINUTES):
        if level.step_s > within.level.step_s:
            continue
        sealed = last_sealed(session, level, server_id)
        until = within.until if sealed is None else min(sealed + level.span_s, within.until)
        if sealed is not None and until > since:
            yield from _of_chunks(session, level, wanted, server_id, since, until)
            since = until
    yield from _of_windows(session, wanted, server_id, since, within.until)


def _of_chunks(
    session: Session, level: SeriesLevel, wanted: Wanted, server_id: str, since: int, until: int
) -> Iterator[_NamedPoint]:
    rows = session.execute(
        select(SeriesChunkRow.subject, SeriesChunkRow.start, SeriesChunkRow.payload).where(
            SeriesChunkRow.level == level.step_s,
            SeriesChunkRow.start > since - level.span_s,
            SeriesChunkRow.start < until,
            SeriesChunkRow.server_id == server_id,
            SeriesChunkRow.subject != SEALED,
        )
    )
    for key, start, payload in rows:
        name = wanted(subject_of(key))
        if name is None:
            continue
        for one in unpack_chunk(payload):
            at = start + one.number * level.step_s
            if since <= at < until:
                yield name, key, at, one.point


def _of_windows(
    session: Session, wanted: Wanted, server_id: str, since: int, until: int
) -> Iterator[_NamedPoint]:
    at = SeriesWindowRow.at
    rows = session.execute(
        select(at, SeriesWindowRow.payload).where(
            SeriesWindowRow.server_id == server_id, at >= since, at < until
        )
    )
    for when, payload in rows:
        for row in unpack_subjects(payload):
            name = wanted(row.subject)
            if name is not None:
                yield name, row.subject.key, when, row.unpacked()

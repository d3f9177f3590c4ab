"""Series for charts: points of subjects between two moments, from whichever levels have them."""

from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace

from sqlalchemy import select
from sqlalchemy.orm import Session

from control.series.levels import MINUTES, QUARTERS, SeriesLevel, level_for, step_for
from control.series.packing import unpack_chunk, unpack_rows
from control.series.points import SeriesPoint, one_after_another, side_by_side, subject_of
from control.series.recording import SEALED, last_sealed
from control.series.selection import SeriesSelection
from control.series.tables import SeriesChunkRow, SeriesWindowRow


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

    def start_of(self, at: int) -> int:
        """Of the point that has this moment."""
        return at - (at - self.since) % self.step_s


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


LEAST_STEPS = 15


def steps_of_one_point(seconds: int, most: int) -> int:
    """Of how many steps the only point of a range is made, `most` at most: of a minute each, since
    what does not fill a step at its end is left out."""
    return min(most, max(LEAST_STEPS, seconds // MINUTES.step_s))


MergedPoints = dict[str, SeriesPoint]
"""By the name of their series, of one stretch of time."""


def as_one_point(
    within: SeriesRange, series: dict[str, dict[int, SeriesPoint]]
) -> tuple[SeriesRange, dict[str, dict[int, SeriesPoint]]]:
    """The range as one step, and the points of each series by their starts as the one of it."""
    found = {
        name: {within.since: one_after_another([points[at] for at in sorted(points)])}
        for name, points in series.items()
    }
    return replace(within, step_s=within.until - within.since), found


_Source = tuple[str, int, int | str]
"""A row that points were made from: its server, when it begins, and its level or its boot. What is
in such a row never changes."""


def sources_of(
    session: Session, within: SeriesRange, server: str = ""
) -> dict[int, tuple[_Source, ...]]:
    """What the points of each stretch are made from, by when it begins; without those of which
    nothing was counted. The points of a stretch are the same as long as its sources are."""
    found: dict[int, list[_Source]] = defaultdict(list)
    for server_id in _servers(session, within, server):
        since = within.since
        for level, until in _sealed(session, within, server_id):
            for start in range(since - since % level.span_s, until, level.span_s):
                first, end = max(start, since), min(start + level.span_s, until)
                for at in range(within.start_of(first), end, within.step_s):
                    found[at].append((server_id, start, level.step_s))
            since = until
        row = SeriesWindowRow
        windows = select(row.at, row.boot).where(
            row.server_id == server_id, row.at >= since, row.at < within.until
        )
        for at, boot in session.execute(windows.order_by(row.at, row.boot)):
            found[within.start_of(at)].append((server_id, at, boot))
    return {start: tuple(sources) for start, sources in found.items()}


def read(
    session: Session, within: SeriesRange, selection: SeriesSelection, server: str = ""
) -> dict[int, MergedPoints]:
    """The points of each series by the moment in which they begin; where nothing was counted there
    is none. `server`: of that one alone; else of all together."""
    found: dict[tuple[int, str], list[SeriesPoint]] = defaultdict(list)
    for server_id in _servers(session, within, server):
        of_one: dict[tuple[str, str, int], list[SeriesPoint]] = defaultdict(list)
        for name, key, at, point in _points(session, within, selection, server_id):
            of_one[name, key, within.start_of(at)].append(point)
        for (name, _, start), points in of_one.items():
            found[start, name].append(one_after_another(points))
    merged: dict[int, MergedPoints] = defaultdict(dict)
    for (start, name), side in found.items():
        merged[start][name] = side_by_side(side)
    return dict(merged)


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


def _sealed(
    session: Session, within: SeriesRange, server_id: str
) -> Iterator[tuple[SeriesLevel, int]]:
    """Which level has the points up to which moment, coarsest first. Where a level has not been
    sealed yet, the level below goes on."""
    since = within.since
    for level in (QUARTERS, MINUTES):
        if level.step_s > within.level.step_s:
            continue
        sealed = last_sealed(session, level, server_id)
        until = since if sealed is None else min(sealed + level.span_s, within.until)
        if until > since:
            yield level, until
            since = until


_NamedPoint = tuple[str, str, int, SeriesPoint]
"""The name of its series, the key of its subject, when it begins."""


def _points(
    session: Session, within: SeriesRange, selection: SeriesSelection, server_id: str
) -> Iterator[_NamedPoint]:
    """Of one server."""
    since = within.since
    for level, until in _sealed(session, within, server_id):
        for prefix in selection.prefixes:
            yield from _of_chunks(session, level, selection, server_id, since, until, prefix)
        since = until
    yield from _of_windows(session, selection, server_id, since, within.until)


def _of_chunks(
    session: Session,
    level: SeriesLevel,
    selection: SeriesSelection,
    server_id: str,
    since: int,
    until: int,
    prefix: str,
) -> Iterator[_NamedPoint]:
    """Each start is named, so that the index leads to the subjects of one model among hundreds."""
    starts = range(since - since % level.span_s, until, level.span_s)
    row = SeriesChunkRow
    after = prefix[:-1] + chr(ord("/") + 1)
    rows = session.execute(
        select(row.subject, row.start, row.payload).where(
            row.level == level.step_s,
            row.start.in_(starts),
            row.subject >= prefix,
            row.subject < after,
            row.server_id == server_id,
        )
    )
    for key, start, payload in rows:
        name = selection.name_of(subject_of(key))
        if name is None:
            continue
        for one in unpack_chunk(payload):
            at = start + one.number * level.step_s
            if since <= at < until:
                yield name, key, at, one.point


def _of_windows(
    session: Session, selection: SeriesSelection, server_id: str, since: int, until: int
) -> Iterator[_NamedPoint]:
    at = SeriesWindowRow.at
    rows = session.execute(
        select(at, SeriesWindowRow.payload).where(
            SeriesWindowRow.server_id == server_id, at >= since, at < until
        ),
        execution_options={"yield_per": 50},
    )
    for when, payload in rows:
        for row in unpack_rows(payload, selection.prefixes):
            name = selection.name_of(row.subject)
            if name is not None:
                yield name, row.subject.key, when, row.point

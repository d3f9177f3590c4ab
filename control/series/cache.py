"""Points that charts were drawn of, kept: a tab asks every few seconds for an hour of which only
the last seconds are new, and each window of a server holds all its versions."""

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy.orm import Session

from control.series import reading
from control.series.points import SeriesPoint
from control.series.reading import MergedPoints, SeriesRange
from control.series.selection import SeriesSelection

LIMIT_BYTES = 60 * 2**20
"""Of memory, as `_size_of` works it out, which is a tenth to a quarter too much: some 40,000 points
of models, or 5,000 of ensembles of ten steps. Charts of hundreds of models reach it."""

_STRETCH_BYTES, _SOURCE_BYTES, _NAME_BYTES = 700, 200, 150
_POINT_BYTES, _REASON_BYTES, _LATENCY_BYTES = 700, 100, 24
_LANGUAGE_BYTES, _SEQUENCE_BYTES, _STEP_BYTES = 250, 450, 500

_LOCKS = 16


class _WindowKey(NamedTuple):
    selection: SeriesSelection
    server: str
    level_s: int
    step_s: int
    start: int


class _Kept(NamedTuple):
    sources: tuple[object, ...]
    points: MergedPoints
    size_bytes: int


class SeriesCache:
    """Reads series, and what it has read before only if other rows are there now. From any thread;
    those that ask the same at the same time wait for one."""

    def __init__(
        self, limit_bytes: int = LIMIT_BYTES, write_held: Callable[[], None] = lambda: None
    ) -> None:
        """`write_held` has the database take what waits to be written; blocks. Call it before a
        session is opened to `read`."""
        self._limit_bytes = limit_bytes
        self.write_held = write_held
        self.size_bytes = 0
        """Of what is kept; at most `limit_bytes`."""
        self._kept: OrderedDict[_WindowKey, _Kept] = OrderedDict()
        self._guard = threading.Lock()
        self._readers = tuple(threading.Lock() for _ in range(_LOCKS))

    def read(
        self, session: Session, within: SeriesRange, selection: SeriesSelection, server: str = ""
    ) -> dict[str, dict[int, SeriesPoint]]:
        """The points of each selected series by the moment in which they begin, as
        `control.series.reading.read` finds them, by the name of the series."""
        with self._readers[hash((selection, server, within.step_s)) % _LOCKS]:
            merged = self._merged(session, within, selection, server)
        series: dict[str, dict[int, SeriesPoint]] = defaultdict(dict)
        for start in sorted(merged):
            for name, point in merged[start].items():
                series[name][start] = point
        return dict(series)

    def _merged(
        self, session: Session, within: SeriesRange, selection: SeriesSelection, server: str
    ) -> dict[int, MergedPoints]:
        sources = reading.sources_of(session, within, server)
        common = selection, server, within.level.step_s, within.step_s
        merged: dict[int, MergedPoints] = {}
        missing = []
        with self._guard:
            for start, made_from in sources.items():
                kept = self._kept.get(_WindowKey(*common, start))
                if kept is None or kept.sources != made_from:
                    missing.append(start)
                    continue
                self._kept.move_to_end(_WindowKey(*common, start))
                merged[start] = kept.points
        for since, until in _stretches(sorted(missing), within.step_s):
            part = replace(within, since=since, until=until)
            found = reading.read(session, part, selection, server)
            for start in part.starts:
                merged[start] = found.get(start, {})
                self._keep(_WindowKey(*common, start), sources[start], merged[start])
        return merged

    def _keep(self, key: _WindowKey, sources: tuple[object, ...], points: MergedPoints) -> None:
        size = _STRETCH_BYTES + _SOURCE_BYTES * len(sources)
        size += sum(_NAME_BYTES + len(name) + _size_of(one) for name, one in points.items())
        with self._guard:
            self._forget(self._kept.pop(key, None))
            self._kept[key] = _Kept(sources, points, size)
            self.size_bytes += size
            while self.size_bytes > self._limit_bytes:
                self._forget(self._kept.popitem(last=False)[1])

    def _forget(self, old: _Kept | None) -> None:
        if old is not None:
            self.size_bytes -= old.size_bytes


def _size_of(point: SeriesPoint) -> int:
    size = _POINT_BYTES + _REASON_BYTES * len(point.failed)
    latencies = len(point.latency)
    if point.language is not None:
        size += _LANGUAGE_BYTES
        latencies += len(point.language.first_token) + len(point.language.between_tokens)
    if point.sequences is not None:
        size += _SEQUENCE_BYTES
    for step in (point.steps or {}).values():
        size += _STEP_BYTES
        latencies += len(step.latency)
    return size + _LATENCY_BYTES * latencies


def _stretches(starts: Iterable[int], step_s: int) -> Iterator[tuple[int, int]]:
    """Those that follow one another as one, from its start to its end."""
    since = until = None
    for start in starts:
        if start != until:
            if since is not None and until is not None:
                yield since, until
            since = start
        until = start + step_s
    if since is not None and until is not None:
        yield since, until

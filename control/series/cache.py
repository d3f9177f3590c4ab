"""Points that charts were drawn of, kept: a tab asks every few seconds for an hour of which only
the last seconds are new, and each window of a server holds all its versions."""

import threading
from collections import OrderedDict, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from sqlalchemy.orm import Session

from control.series import reading
from control.series.points import SeriesPoint
from control.series.reading import MergedPoints, SeriesRange
from control.series.selection import SeriesSelection

MOST_POINTS = 100_000
"""Of all that is kept: some 60 MB, reached by charts of hundreds of models."""

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


class SeriesCache:
    """Reads series, and what it has read before only if other rows are there now. From any thread;
    those that ask the same at the same time wait for one."""

    def __init__(self, most_points: int = MOST_POINTS) -> None:
        self._most = most_points
        self.points = 0
        """And stretches that are kept; at most `most_points`."""
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
                self._keep(_WindowKey(*common, start), _Kept(sources[start], merged[start]))
        return merged

    def _keep(self, key: _WindowKey, new: _Kept) -> None:
        with self._guard:
            self._forget(self._kept.pop(key, None))
            self._kept[key] = new
            self.points += 1 + len(new.points)
            while self.points > self._most and self._kept:
                self._forget(self._kept.popitem(last=False)[1])

    def _forget(self, old: _Kept | None) -> None:
        if old is not None:
            self.points -= 1 + len(old.points)


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

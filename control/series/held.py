"""Windows of a server to which nothing happens, which wait to be written together: a server that
is idle writes nothing to its disk."""

import threading
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

from control.series.points import SeriesPoint, SeriesSubject, SeriesWindow

HOLD_S = 900
"""The oldest waits at most so long; less than `levels.LATE_S`, so that what is sealed is whole."""

LAG_US = 50_000
"""A delay of the loop from which on it is no rest."""

MEMORY_SHARE = 0.05
"""By so much may memory grow or shrink meanwhile."""


_Key = tuple[str, int, str]


class HeldWindows:
    """From any thread. They are kept until they are `written`, and lost with the process: points of
    nothing."""

    def __init__(self) -> None:
        self._windows: dict[_Key, SeriesWindow] = {}
        self._last: SeriesWindow | None = None
        self._guard = threading.Lock()

    def hold(self, window: SeriesWindow) -> bool:
        """Whether it may wait; then it is kept here. Windows are offered as they come."""
        with self._guard:
            last, self._last = self._last, window
            if last is None or not is_idle(window, last):
                return False
            oldest = min((one.at for one in self._windows.values()), default=window.at)
            if window.at - oldest >= HOLD_S:
                return False
            self._windows[_key(window)] = window
            return True

    def waiting(self) -> Sequence[SeriesWindow]:
        with self._guard:
            return tuple(self._windows.values())

    def overdue(self, now: float) -> Sequence[SeriesWindow]:
        """All that wait where the oldest has waited its time: none came that had something, or it
        came late itself. They are written before anything is sealed."""
        waiting = self.waiting()
        return waiting if any(now - one.at >= HOLD_S for one in waiting) else ()

    def written(self, windows: Iterable[SeriesWindow]) -> None:
        """They are in the database."""
        with self._guard:
            for one in windows:
                self._windows.pop(_key(one), None)


def is_idle(window: SeriesWindow, last: SeriesWindow) -> bool:
    """Whether nothing was counted in either, and what is there is there as it was. Pure."""
    rows, before = _by_subject(window), _by_subject(last)
    return (
        rows.keys() == before.keys()
        and not any(map(_counted, chain(rows.values(), before.values())))
        and all(_is_same(rows[subject], before[subject]) for subject in rows)
    )


def _key(window: SeriesWindow) -> _Key:
    return window.server, window.at, window.boot


def _by_subject(window: SeriesWindow) -> Mapping[SeriesSubject, SeriesPoint]:
    return {row.subject: row.point for row in window.rows}


def _counted(point: SeriesPoint) -> bool:
    language, sequences = point.language, point.sequences
    return bool(
        point.succeeded
        or point.failed
        or point.batches
        or point.busy_us
        or point.pending
        or point.steps
        or point.loop_lag_us >= LAG_US
        or (language and (language.prompt_tokens or language.generated_tokens or language.running))
        or (sequences and (sequences.started or sequences.expired or sequences.lost))
    )


def _is_same(point: SeriesPoint, before: SeriesPoint) -> bool:
    live, lived = point.sequences, before.sequences
    return (
        point.instances == before.instances
        and abs(point.memory_bytes - before.memory_bytes) <= MEMORY_SHARE * before.memory_bytes
        and (live and live.live) == (lived and lived.live)
    )

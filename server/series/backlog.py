"""Windows that the control process has not stored yet: sent again until it has."""

import asyncio
from collections import OrderedDict
from collections.abc import Iterator

from control.series.points import WINDOW_S, SeriesWindow
from server.series.spool import WindowKey

KEEP_S = 900
MOST_WINDOWS = KEEP_S // WINDOW_S
"""Kept while the control process is away; of more, the oldest are lost."""

MOST_ROWS = 100_000
"""In all windows together, of some 200 bytes each; at least one window is kept."""


class SeriesBacklog:
    """On the loop's thread."""

    def __init__(self) -> None:
        self._windows: OrderedDict[WindowKey, SeriesWindow] = OrderedDict()
        self._unsent: set[WindowKey] = set()
        self._rows = 0
        self._dropped = asyncio.Event()
        self.lost = 0
        """Windows that nobody will see."""

    async def shrunk(self) -> None:
        """Wait until one has been stored, or dropped."""
        self._dropped.clear()
        await self._dropped.wait()

    def __len__(self) -> int:
        return len(self._windows)

    def add(self, window: SeriesWindow) -> None:
        key = window.at, window.boot
        if key in self._windows:  # the clock was set back
            self._drop(key)
        self._windows[key] = window
        self._unsent.add(key)
        self._rows += len(window.rows)
        while len(self._windows) > MOST_WINDOWS or (
            self._rows > MOST_ROWS and len(self._windows) > 1
        ):
            self._drop(next(iter(self._windows)))
            self.lost += 1

    def stored(self, at: int, boot: str) -> None:
        """The control process has this window; of any boot where `boot` is ""."""
        for key in [one for one in self._windows if one[0] == at and boot in ("", one[1])]:
            self._drop(key)

    def waiting(self) -> dict[WindowKey, SeriesWindow]:
        """All that are not stored."""
        return dict(self._windows)

    def messages(self, everything: bool) -> Iterator[SeriesWindow]:
        """Those that were not sent yet, oldest first; `everything`: also those that were, and are
        not stored."""
        for key in list(self._windows):
            window = self._windows.get(key)
            if window is not None and (everything or key in self._unsent):
                self._unsent.discard(key)
                yield window

    def _drop(self, key: WindowKey) -> None:
        self._rows -= len(self._windows.pop(key).rows)
        self._unsent.discard(key)
        self._dropped.set()

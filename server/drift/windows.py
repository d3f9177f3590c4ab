"""Makes a window of what was counted of watched models, and keeps it until it is stored."""

import asyncio
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from control.drift.points import DriftScores, DriftStored, DriftWindow
from server.drift.observer import DriftObserver
from server.served_version import ServedVersion

COUNT_S = 1.0
"""Between two counts of what was copied: so long copies are kept."""

KEEP_S = 900
MOST_WINDOWS = 60
"""Kept while the control process is away; of more, the oldest are lost."""


class DriftWindows:
    """One gateway's, on the loop. `span_s`: of a window, which begins at a multiple of it.
    `served`: what is loaded."""

    def __init__(
        self,
        server: str,
        observer: DriftObserver,
        span_s: int,
        served: Callable[[], Iterable[ServedVersion]],
    ) -> None:
        self._server = server
        self._boot = secrets.token_hex(8)
        self._observer = observer
        self._span_s = span_s
        self._served = served
        self._windows: OrderedDict[int, DriftWindow] = OrderedDict()
        self._unsent: set[int] = set()
        self._scores = DriftScores(())

    async def run(self) -> None:
        """Until cancelled."""
        at = self._start(time.time())
        while True:
            await asyncio.sleep(COUNT_S)
            if self._observer.on:
                await asyncio.to_thread(self._observer.count)
            following = self._start(time.time())
            if following != at:
                await self._close(at)
                at = following

    def stored(self, at: int) -> None:
        """The control process has the window from `at` on."""
        self._windows.pop(at, None)
        self._unsent.discard(at)

    def messages(self, everything: bool) -> Iterator[DriftWindow]:
        """Those that were not sent yet; `everything`: also those that were, and are not stored."""
        for at in list(self._windows):
            window = self._windows.get(at)
            if window is not None and (everything or at in self._unsent):
                self._unsent.discard(at)
                yield window

    def on_message(self, message: DriftStored | DriftScores) -> None:
        """The control process has a window, or has found something."""
        if isinstance(message, DriftScores):
            self._scores = message
        else:
            self.stored(message.at)

    def found(self) -> DriftScores:
        """What the control process found last, for the metrics."""
        return self._scores

    def _start(self, now: float) -> int:
        return int(now) - int(now) % self._span_s

    async def _close(self, at: int) -> None:
        rows = await asyncio.to_thread(self._observer.take, self._folder_of)
        if not rows:
            return
        self._windows[at] = DriftWindow(self._server, self._boot, at, self._span_s, rows)
        self._unsent.add(at)
        most = min(MOST_WINDOWS, -(-KEEP_S // self._span_s))
        while len(self._windows) > most:
            self.stored(next(iter(self._windows)))

    def _folder_of(self, model: str, version: int) -> Path | None:
        for one in list(self._served()):
            if (one.version.name, one.version.number) == (model, version):
                return one.version.path
        return None

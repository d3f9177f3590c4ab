"""Makes a window of what was counted every ten seconds, at the same moments on every server."""

import asyncio
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress

from control.series.points import WINDOW_S, SeriesWindow
from server.series.backlog import MOST_WINDOWS, SeriesBacklog
from server.series.collector import SeriesCollector
from server.series.spool import WindowKey, WindowSpool

LAST_S = 1.0
"""How long a server that ends waits for its last windows to be stored."""


class SeriesWindows:
    """One gateway's. `closed` is given each window that has ended, also by a server without a
    control process, which keeps none to send; `changed` is called when there is one to send. The
    `spool` has those on the disk that are not stored when the next one ends."""

    def __init__(
        self,
        server: str,
        collector: SeriesCollector,
        closed: Callable[[SeriesWindow], Awaitable[None]],
        backlog: SeriesBacklog | None = None,
        changed: Callable[[], None] = lambda: None,
        spool: WindowSpool | None = None,
    ) -> None:
        self._server = server
        self._boot = secrets.token_hex(8)
        self._collector = collector
        self._closed = closed
        self._backlog = backlog
        self._changed = changed
        self._spool = spool
        self._at = _window_of(time.time())

    async def run(self) -> None:
        """Until cancelled."""
        if self._backlog is not None and self._spool is not None:
            for window in await asyncio.to_thread(self._spool.read, MOST_WINDOWS):
                self._backlog.add(window)
        self._at = _window_of(time.time())
        while True:
            now = time.time()
            await asyncio.sleep(WINDOW_S - now % WINDOW_S)
            following = _window_of(time.time() + 1.0)  # a timer may be a little early
            if following != self._at:
                await self._close()
                self._at = following

    async def end(self) -> None:
        """The last window of a server that ends; brief."""
        await self._close()
        if self._backlog is None:
            return
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                while len(self._backlog):
                    await self._backlog.shrunk()
        await self._keep(self._backlog.waiting())

    async def _close(self) -> None:
        """End the window that is open: what was counted so far is to be sent."""
        rows = []
        for row in self._collector.rows():
            if row is not None:
                rows.append(row)
            await asyncio.sleep(0)  # requests go first
        window = SeriesWindow(self._server, self._boot, self._at, tuple(rows))
        if self._backlog is not None:
            late = self._backlog.waiting()
            self._backlog.add(window)
            self._changed()
            await self._keep(late)
        await self._closed(window)

    async def _keep(self, windows: Mapping[WindowKey, SeriesWindow]) -> None:
        if self._spool is not None and (windows or not self._spool.empty()):
            await asyncio.to_thread(self._spool.sync, windows)


def _window_of(now: float) -> int:
    return int(now) - int(now) % WINDOW_S

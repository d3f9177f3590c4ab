"""The repositories, watched: a new Snapshot whenever something has changed and come to rest.

The decision is `repository.settle`'s; this is its pump. File system events only say "look now":
whatever they miss is seen by the next scan, `poll_secs` later at the latest.
"""

import asyncio
import logging
import threading
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from pathlib import Path

from watchfiles import awatch

from repository.errors import BadRepository
from repository.model import Snapshot
from repository.settle import NOTHING, Settled, settle
from repository.snapshot import Scanner, States

logger = logging.getLogger(__name__)

SETTLE_SECS = 0.25
"""Between two scans while something moves; also the least time between any two scans."""

NO_EVENTS_POLL_SECS = 1.0
"""Between scans when events were asked for and the system has none to give."""


class Repository:
    """What exists, now and from now on. One life: once `close`d, or once `changes()` ended, over.

    `snapshot()` may be called from any thread, also while `changes()` runs; everything else
    belongs to the loop. It loads nothing and calls nobody.
    """

    def __init__(
        self,
        roots: Sequence[Path],
        poll_secs: float = 15.0,
        use_events: bool = True,
        config_name: str = "",
    ) -> None:
        self._scanner = Scanner(roots, config_name)
        self._poll_secs = poll_secs
        self._use_events = use_events
        self._scanning = threading.Lock()  # the scanner has two callers, snapshot and changes
        self._settled: Settled = NOTHING
        self._reported: States | None = None
        self._missing = False
        self._woken = asyncio.Event()
        self._closed = asyncio.Event()

    def snapshot(self) -> Snapshot:
        """Scan now and believe it, copied halfway or not; blocks for the scan.

        Raises `BadRepository` when a root cannot be read. The first one is what `changes()`
        starts from; later ones do not keep a change from being reported there.
        """
        with self._scanning:
            seen = self._scanner.look()
            self._settled = Settled(seen, seen)
            if self._reported is None:
                self._reported = seen
            return self._scanner.build(seen)

    async def changes(self) -> AsyncGenerator[Snapshot, None]:
        """Each new state of the repositories, until `close`; the loop is never blocked by a scan.

        A root that cannot be read any more changes nothing: its models stay as last seen.
        """
        listening = asyncio.create_task(self._listen())
        try:
            while not self._closed.is_set():
                snapshot = await asyncio.to_thread(self._observe)
                if snapshot is not None and not self._closed.is_set():
                    yield snapshot
                await self._pause()
        finally:
            self.close()
            await listening

    def close(self) -> None:
        """End `changes()`; call it on the loop."""
        self._closed.set()
        self._woken.set()

    def _observe(self) -> Snapshot | None:
        """Scan; a Snapshot when what may be believed differs from what was reported last."""
        with self._scanning:
            try:
                seen = self._scanner.look()
            except BadRepository as error:
                self._lose(error)
                return None
            self._missing = False
            self._settled = settle(self._settled, seen)
            if self._settled.stable == (self._reported or {}):
                return None
            self._reported = self._settled.stable
            return self._scanner.build(self._reported)

    def _lose(self, error: BadRepository) -> None:
        if not self._missing:
            logger.warning("%s; its models stay as they were last seen", error)
        self._missing = True

    async def _pause(self) -> None:
        await _wait(self._closed, SETTLE_SECS)
        if self._settled.at_rest:
            await _wait(self._woken, self._poll_secs)
        self._woken.clear()

    async def _listen(self) -> None:
        """Wake the pump on events; without them let it poll more often instead."""
        if not self._use_events:
            return
        try:
            async for _ in awatch(
                *self._scanner.roots,
                watch_filter=None,
                debounce=200,
                stop_event=self._closed,
            ):
                self._woken.set()
        except (OSError, RuntimeError) as error:
            self._poll_secs = min(self._poll_secs, NO_EVENTS_POLL_SECS)
            self._woken.set()
            logger.warning(
                "no file system events (%s); looking every %g s instead", error, self._poll_secs
            )


async def _wait(event: asyncio.Event, secs: float) -> None:
    with suppress(TimeoutError):
        async with asyncio.timeout(secs):
            await event.wait()

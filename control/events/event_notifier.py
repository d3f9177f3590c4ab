"""Who waits for the next event, and what wakes them: our own commits, and a look at the counter.

The look, every half second while anybody waits, finds what other servers have committed.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from control.errors import DatabaseGone

POLL_S = 0.5

_log = logging.getLogger(__name__)


class EventNotifier:
    """The id of the newest event, for any number of waiters on one loop; made on that loop.

    `newest_event` reads it from the database; it blocks and is called on a thread.
    """

    def __init__(self, newest_event: Callable[[], int], poll_s: float = POLL_S) -> None:
        self._newest_event = newest_event
        self._poll_s = poll_s
        self._loop = asyncio.get_running_loop()
        self._newest = -1
        self._moved = asyncio.Event()
        self._look_now = asyncio.Event()
        self._poller: asyncio.Task[None] | None = None
        self._probe: asyncio.Future[int] | None = None
        self._over = asyncio.Event()
        self.waiters = 0
        self.closed = False

    def committed(self, _: bool = False) -> None:
        """From any thread, after a commit of this process: look now. Fits `Database.on_commit`."""
        with suppress(RuntimeError):  # the loop has ended; so have its waiters
            self._loop.call_soon_threadsafe(self._look_now.set)

    @property
    def latest(self) -> int:
        """The newest event as of the last look; looks are made only while somebody waits."""
        return self._newest

    async def newest(self) -> int:
        """The id of the newest event there is, 0 for none. Raises DatabaseGone."""
        return await asyncio.to_thread(self._newest_event)

    async def answers(self) -> None:
        """Whether there is an answer, for probes that nobody had to say who they are for: one look
        at a time is made for all of them. Raises DatabaseGone."""
        if self._probe is None or self._probe.done():
            self._probe = asyncio.ensure_future(self.newest())
        await asyncio.shield(self._probe)

    async def after(self, event_id: int, timeout_s: float) -> bool:
        """Whether there is an event later than `event_id`, waiting up to `timeout_s` for one.

        Returns at once when closed.
        """
        self.waiters += 1
        self._ensure_polling()
        try:
            async with asyncio.timeout(timeout_s):
                while self._newest <= event_id and not self.closed:
                    await self._moved.wait()
        except TimeoutError:
            return False
        finally:
            self.waiters -= 1
        return self._newest > event_id

    async def rest(self, seconds: float) -> None:
        """A pause without looks; over at once when closed."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._over.wait()

    async def close(self) -> None:
        """End every wait, now and later."""
        self.closed = True
        self._over.set()
        self._moved.set()
        if self._poller is not None:
            self._poller.cancel()
            await asyncio.gather(self._poller, return_exceptions=True)

    def _ensure_polling(self) -> None:
        if not self.closed and (self._poller is None or self._poller.done()):
            self._poller = asyncio.create_task(self._poll())

    async def _poll(self) -> None:
        while self.waiters:
            self._look_now.clear()
            await self._look()
            with suppress(TimeoutError):
                async with asyncio.timeout(self._poll_s):
                    await self._look_now.wait()

    async def _look(self) -> None:
        try:
            newest = await self.newest()
        except DatabaseGone as error:
            _log.debug("events cannot be read: %s", error)
            return
        if newest != self._newest:
            self._newest = newest
            self._moved.set()
            self._moved = asyncio.Event()

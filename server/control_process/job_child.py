"""The worker of offline jobs beside a server: started when there are jobs, watched, restarted, and
ended when there have been none for a while.

It dies with this process; what it ran is then taken by the next one.
"""

import asyncio
import logging
import os
import time
from contextlib import suppress

from control.loops.wake_event import WakeEvent
from repository.process.backoff import Backoff
from repository.process.child import ChildProgram
from repository.process.message_child import MessageChild
from server.desired.control_start import ControlStart, encode_start
from server.settings.table import Settings

FIRST_PAUSE_S, LONGEST_PAUSE_S, STEADY_S = 1.0, 60.0, 60.0
END_S = 20.0
"""Longest it may take to give back what it runs."""

_log = logging.getLogger(__name__)


class JobWorkerChild:
    """Keeps one worker while there are jobs. On one event loop."""

    def __init__(self, settings: Settings, server: str) -> None:
        self._idle_s = settings.job_idle_secs
        self._start_message = encode_start(ControlStart(server=server, settings=settings))
        self._left = 0
        self._busy_at = 0.0
        self._news = WakeEvent()
        self._child: MessageChild | None = None

    @property
    def pid(self) -> int | None:
        """None while it is not running."""
        child = self._child
        return child.pid if child is not None and child.is_alive else None

    def hear_work(self, left: int) -> None:
        """How many jobs wait for it or run; said every second while there are some."""
        self._left = left
        if left:
            self._busy_at = time.monotonic()
            self._news.ring()

    async def run(self) -> None:
        """Until cancelled; then end it."""
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, STEADY_S)
        try:
            while True:
                while not self._left:
                    await self._news.rest(self._idle_s)
                began = time.monotonic()
                ending = await self._live()
                if not ending:
                    continue
                pause_s = backoff.after(time.monotonic() - began)
                _log.error("the job worker %s; it is restarted in %.1f s", ending, pause_s)
                await asyncio.sleep(pause_s)
        finally:
            await self._end()

    async def _live(self) -> str:
        """Start it and watch it; how it ended, in words, "" where it was idle."""
        program = ChildProgram("server.job_worker.main", "modelyard job worker", "", os.environ)
        try:
            self._child = child = await MessageChild.start(program)
        except OSError as error:  # no memory, or too many processes, this moment
            return f"cannot be started ({error})"
        with suppress(ConnectionError):
            await child.send(self._start_message)
        _log.info("the job worker was started (pid %d)", child.pid)
        gone = asyncio.ensure_future(child.gone())
        try:
            while not gone.done():
                await asyncio.wait((gone,), timeout=min(1.0, self._idle_s))
                if not gone.done() and time.monotonic() - self._busy_at > self._idle_s:
                    _log.info("the job worker ends: there has been no job for %g s", self._idle_s)
                    await child.stop(END_S, terminate=True)
                    return ""
            return gone.result()
        finally:
            gone.cancel()

    async def _end(self) -> None:
        child = self._child
        if child is not None and not await child.stop(END_S, terminate=True):
            _log.warning("the job worker did not end within %g s and was killed", END_S)

"""The control process as its gateway sees it: started, watched, restarted, ended.

One that has stopped without ending sends no heartbeats: it is killed, and replaced as a dead one.

It dies with the gateway (it sees to that itself, `server.control_process`); the gateway
never dies with it, and never waits for it.
"""

import asyncio
import logging
import os
import time
from contextlib import suppress

from repository.process.backoff import Backoff
from repository.process.child import ChildProgram
from repository.process.message_child import MessageChild
from repository.process.state import STOPPED
from server.desired.control_start import ControlStart, encode_start
from server.desired.heartbeat import Heartbeats
from server.desired.heartbeat_timeout import BEAT_S, HeartbeatTimeout

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 30.0
STEADY_S = 60.0
"""A process that lived this long is restarted at once."""

ANOTHER, TAKE_OVER_S = 75, 5.0
"""Exit status of one that found another serving the same state folder, and how soon to try to
take over from it."""

END_S, STOPPED_END_S = 10.0, 3.0
"""Longest it may take to end when asked to; and one that has stopped, which hardly will."""

_log = logging.getLogger(__name__)


class ControlChild:
    """Keeps one control process alive. `start`: what it is told first."""

    def __init__(self, start: ControlStart) -> None:
        self._start_message = encode_start(start)
        self._child: MessageChild | None = None
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """None while it is not running."""
        child = self._child
        return child.pid if child is not None and child.is_alive else None

    async def run(self) -> None:
        """Start it, and restart it whenever it ends, until cancelled; then end it."""
        backoff = Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S, STEADY_S)
        try:
            while True:
                began = time.monotonic()
                ending = await self._live()
                lived_s = time.monotonic() - began
                if not ending:
                    await asyncio.sleep(TAKE_OVER_S)
                    continue
                pause_s = backoff.after(lived_s)
                _log.error(
                    "the control process %s after %.1f s; serving continues, and it is restarted "
                    "in %.1f s",
                    ending,
                    lived_s,
                    pause_s,
                )
                await asyncio.sleep(pause_s)
                self.restarts += 1
        finally:
            await self._end()

    async def _live(self) -> str:
        """How it ended, in words; "" when another one serves the state folder."""
        try:
            return await self._run()
        except OSError as error:  # no memory, or too many processes, this moment
            return f"cannot be started ({error})"

    async def _run(self) -> str:
        """As `_live`. Raises OSError."""
        heartbeats = Heartbeats()
        try:
            child = await self._start(heartbeats)
            watching = asyncio.create_task(self._watch(child, heartbeats))
            try:
                ending = await child.gone()
                await child.stop(END_S)
                return "" if child.status == ANOTHER else ending
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
        finally:
            heartbeats.close()

    async def _start(self, heartbeats: Heartbeats) -> MessageChild:
        """Raises OSError."""
        program = ChildProgram("server.control_process.main", "modelyard control", "", os.environ)
        self._child = child = await MessageChild.start(program, (heartbeats.writing,))
        heartbeats.close_writing()
        with suppress(ConnectionError):
            await child.send(self._start_message)
        return child

    async def _watch(self, child: MessageChild, heartbeats: Heartbeats) -> None:
        silence = HeartbeatTimeout(time.monotonic())
        stopped = False
        while not stopped:
            await asyncio.sleep(BEAT_S)
            beats, now = heartbeats.count(), time.monotonic()
            stopped = silence.look(beats, now, child.state in STOPPED)
        _log.error(
            "the control process sent no heartbeat for %.0f s: it has stopped, or hangs; it is "
            "killed and restarted",
            silence.silent_s,
        )
        await self._end(STOPPED_END_S)

    async def _end(self, patience_s: float = END_S) -> None:
        child = self._child
        if child is not None and not await child.stop(patience_s, terminate=True):
            _log.warning("the control process did not exit within %g s and was killed", patience_s)

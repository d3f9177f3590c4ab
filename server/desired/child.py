"""The control process as its gateway sees it: started, watched, started again, ended.

One that has stopped without ending sends no heartbeats: it is killed, and replaced as a dead one.

It dies with the gateway (it sees to that itself, `server.control_process`); the gateway
never dies with it, and never waits for it.
"""

import asyncio
import json
import logging
import os
import signal
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from repository.pipes import feed
from repository.process_state import STOPPED, process_state
from server.desired.heartbeat import Heartbeats
from server.desired.heartbeat_timeout import BEAT_S, HeartbeatTimeout
from server.settings.table import TABLE, Settings

FIRST_PAUSE_S, LONGEST_PAUSE_S = 0.2, 30.0
STEADY_S = 60.0
"""A process that lived this long is started again at once."""

ANOTHER, TAKE_OVER_S = 75, 5.0
"""Exit status of one that found another serving the same state folder, and how soon to try to
take over from it."""

END_S, STOPPED_END_S = 10.0, 3.0
"""Longest it may take to end when asked to; and one that has stopped, which hardly will."""

_ROOT = str(Path(__file__).resolve().parent.parent.parent)
_log = logging.getLogger(__name__)


class ControlChild:
    """Keeps one control process alive. `facts`: what it is told, as `facts_of` makes it."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        self._facts = {**facts, "parent": os.getpid()}
        self._process: asyncio.subprocess.Process | None = None
        self.restarts = 0

    @property
    def pid(self) -> int | None:
        """None while it is not running."""
        process = self._process
        return process.pid if process is not None and process.returncode is None else None

    async def run(self) -> None:
        """Start it, and start it again whenever it ends, until cancelled; then end it."""
        pause_s = FIRST_PAUSE_S
        try:
            while True:
                began = time.monotonic()
                ending = await self._live()
                lived_s = time.monotonic() - began
                if not ending:
                    await asyncio.sleep(TAKE_OVER_S)
                    continue
                pause_s = FIRST_PAUSE_S if lived_s > STEADY_S else pause_s
                _log.error(
                    "the control process %s after %.1f s; serving continues, and it is restarted "
                    "in %.1f s",
                    ending,
                    lived_s,
                    pause_s,
                )
                await asyncio.sleep(pause_s)
                pause_s = min(pause_s * 2, LONGEST_PAUSE_S)
                self.restarts += 1
        finally:
            await self._end()

    async def _live(self) -> str:
        """How it ended, in words; "" when another one serves the state folder."""
        try:
            code = await self._run()
        except OSError as error:  # no memory, or too many processes, this moment
            return f"cannot be started ({error})"
        return "" if code == ANOTHER else _ending(code)

    async def _run(self) -> int:
        """Raises OSError."""
        heartbeats = Heartbeats()
        try:
            process = await self._start(heartbeats)
            watching = asyncio.create_task(self._watch(heartbeats))
            try:
                return await process.wait()
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)
        finally:
            heartbeats.close()

    async def _start(self, heartbeats: Heartbeats) -> asyncio.subprocess.Process:
        """Raises OSError."""
        paths = [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            "server.control_process",
            stdin=asyncio.subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
            start_new_session=True,  # Ctrl-C is the gateway's to answer
            pass_fds=(heartbeats.writing,),
        )
        facts = {**self._facts, "heartbeat": heartbeats.writing}
        heartbeats.close_writing()
        assert process.stdin is not None
        with suppress(ConnectionError):
            await feed(process.stdin, json.dumps(facts, default=str).encode())
        process.stdin.close()
        return process

    async def _watch(self, heartbeats: Heartbeats) -> None:
        silence = HeartbeatTimeout(time.monotonic())
        stopped = False
        while not stopped:
            await asyncio.sleep(BEAT_S)
            beats, now = heartbeats.count(), time.monotonic()
            is_stopped = process_state(self.pid or 0) in STOPPED
            stopped = silence.look(beats, now, is_stopped)
        _log.error(
            "the control process sent no heartbeat for %.0f s: it has stopped, or hangs; it is "
            "killed and restarted",
            silence.silent_s,
        )
        await self._end(STOPPED_END_S)

    async def _end(self, patience_s: float = END_S) -> None:
        process = self._process
        if process is None or process.returncode is not None:
            return
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), patience_s)
        except TimeoutError:
            _log.warning("the control process has not exited after %g s and is killed", patience_s)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def _ending(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    with suppress(ValueError):
        return f"died with signal {-code} ({signal.Signals(-code).name})"
    return f"died with signal {-code}"


def facts_of(settings: Settings, server: str) -> dict[str, Any]:
    """Every setting as it is in force, where it came from, and the server's id; JSON-able."""
    values = {row.name: _plain(getattr(settings, row.name)) for row in TABLE}
    return {"server": server, "settings": values, "sources": dict(settings.sources)}


def settings_of(told: Mapping[str, Any]) -> Settings:
    """The same settings again, in the control process. Raises SettingsError."""
    values = {name: _rich(value) for name, value in told["settings"].items()}
    return Settings(**values, sources=told["sources"])


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return {"path": str(value.absolute())}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _rich(value: Any) -> Any:
    if isinstance(value, dict):
        return Path(value["path"])
    return tuple(_rich(one) for one in value) if isinstance(value, list) else value

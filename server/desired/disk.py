"""The last good desired state on this gateway's disk: it starts, and serves, without control."""

import asyncio
import logging
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

from control.desired import NOTHING, DesiredState
from control.gateways.wire import decode_state, encode_state

NAME = "desired.msgpack"
IN_FORCE = "in-force.msgpack"
"""What answers while something desired is not ready yet; there is none when all of it is."""

RETRY_S = 10.0
"""Between two tries to write what the disk did not take."""

_log = logging.getLogger(__name__)


class DiskCopy:
    """Keeps what is desired, and what is in force meanwhile, on the disk; on the loop's thread, and
    written off it."""

    def __init__(
        self, state_dir: Path, desired: DesiredState, in_force: DesiredState | None = None
    ) -> None:
        """`desired` and `in_force`: what the disk has."""
        self._state_dir = state_dir
        self._desired = self._kept = desired
        self._in_force = self._kept_in_force = in_force
        self._news = asyncio.Event()
        self._ended = False

    def put(self, desired: DesiredState, in_force: DesiredState | None) -> None:
        """Have the disk know both soon; `in_force` is None where it is what is desired."""
        self._desired, self._in_force = desired, in_force
        self._news.set()

    async def run(self) -> None:
        """Until `end`. The disk may take its time; of several that came meanwhile the last is
        written. A crash before that is as one before it came: it is told again."""
        all_kept = True
        while not self._ended or self._news.is_set():
            with suppress(TimeoutError):
                await asyncio.wait_for(self._news.wait(), None if all_kept else RETRY_S)
            self._news.clear()
            all_kept = await self._keep_both(self._desired, self._in_force)

    def end(self) -> None:
        """Let `run` return once the disk has been given what came last."""
        self._ended = True
        self._news.set()

    async def _keep_both(self, desired: DesiredState, in_force: DesiredState | None) -> bool:
        """Whether the disk has both; what stands in for a desired state is there before it."""
        if in_force is not None and in_force is not self._kept_in_force:
            if not await self._write(keep_in_force, in_force):
                return False
            self._kept_in_force = in_force
        if desired is not self._kept:
            if not await self._write(keep, desired):
                return False
            self._kept = desired
        if in_force is None and self._kept_in_force is not None:
            if not await self._write(keep_in_force, None):
                return False
            self._kept_in_force = None
        return True

    async def _write(self, keep: Callable[[Path, Any], None], state: DesiredState | None) -> bool:
        try:
            await asyncio.to_thread(keep, self._state_dir, state)
        except OSError as error:
            _log.error("desired state cannot be kept in %s: %s", self._state_dir, error)
            return False
        return True


def read(state_dir: Path) -> DesiredState:
    """What was kept, or nothing; a damaged file is told of and left for a person to look at."""
    return _read(state_dir / NAME) or NOTHING


def read_in_force(state_dir: Path) -> DesiredState | None:
    """What answered when the process before this one ended, where that was not what is desired."""
    return _read(state_dir / IN_FORCE)


def _read(path: Path) -> DesiredState | None:
    try:
        return decode_state(path.read_bytes())
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.error("%s cannot be used: %s; waiting for the control process", path, error)
        return None


def keep(state_dir: Path, desired: DesiredState) -> None:
    """Replace what was kept; after a crash there is the old one or the new one. Raises OSError."""
    _keep(state_dir, NAME, desired)


def keep_in_force(state_dir: Path, in_force: DesiredState | None) -> None:
    """Replace what `read_in_force` will read; None for nothing. Raises OSError."""
    if in_force is None:
        (state_dir / IN_FORCE).unlink(missing_ok=True)
    else:
        _keep(state_dir, IN_FORCE, in_force)


def _keep(state_dir: Path, name: str, desired: DesiredState) -> None:
    state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
    fresh = state_dir / f"{name}.new"
    descriptor = os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(encode_state(desired))
        file.flush()
        os.fsync(file.fileno())
    os.replace(fresh, state_dir / name)

"""One server for one state folder: an exclusive lock, which the kernel releases with its process.

The lock is flock(2) on `STATE_DIR/server.lock`. The file also says whose it is, for the message
that a second server gives; what it says after that server has gone hinders nobody.
"""

import errno
import fcntl
import json
import logging
import os
import socket
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

NAME = "server.lock"

_LONGEST_BYTES = 4096
_HELD = (errno.EWOULDBLOCK, errno.EACCES)
_log = logging.getLogger(__name__)


class StateFolderInUse(Exception):
    """Another server holds the state folder; names it, its addresses and what would work."""


class StateLock:
    """Holds the state folder from its construction to `release`, or to the end of the process.

    `addresses`: where this server listens, by name, for whoever finds the folder in use. A folder
    that cannot be locked (read-only, full, a file system without locks) is used without a lock and
    with a warning. Raises StateFolderInUse; blocks only on the file system.
    """

    def __init__(self, state_dir: Path, addresses: Mapping[str, str]) -> None:
        self._descriptor: int | None = None
        path = state_dir / NAME
        try:
            state_dir.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            in_use = self._descriptor is not None and error.errno in _HELD
            message = _in_use(state_dir, self._read()) if in_use else ""
            self.release()
            if message:
                raise StateFolderInUse(message) from None
            _log.warning(
                "%s cannot be locked: %s; a second server on this state folder would go unnoticed",
                path,
                error.strerror,
            )
            return
        self._write({"pid": os.getpid(), "host": socket.gethostname(), "listens": {**addresses}})

    def release(self) -> None:
        """Let another server have the folder; the file stays."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def _read(self) -> dict[str, Any]:
        """What the holder wrote; empty where that cannot be read."""
        assert self._descriptor is not None
        try:
            found = json.loads(os.pread(self._descriptor, _LONGEST_BYTES, 0))
        except (OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}

    def _write(self, holder: Mapping[str, Any]) -> None:
        assert self._descriptor is not None
        with suppress(OSError):  # a full disk keeps no server from starting
            os.ftruncate(self._descriptor, 0)
            os.pwrite(self._descriptor, json.dumps(holder).encode(), 0)


def _in_use(state_dir: Path, holder: Mapping[str, Any]) -> str:
    who = f"another server (pid {holder['pid']})" if "pid" in holder else "another server"
    if holder.get("host", "") not in ("", socket.gethostname()):
        who += f" on {holder['host']}"
    listens = holder.get("listens")
    if isinstance(listens, dict) and listens:
        who += ", " + ", ".join(f"{name} {address}" for name, address in listens.items())
    return (
        f"the state folder {state_dir.absolute()} is in use by {who}; stop that server, or give "
        "this one a folder of its own with --state-dir"
    )

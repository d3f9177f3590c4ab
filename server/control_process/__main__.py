"""The control process: `python -m server.control_process`, a child of the gateway
(`server.desired`).

It owns the database, the git repositories and the admin port. Its settings come as JSON on stdin.
"""

import asyncio
import ctypes
import fcntl
import json
import logging
import os
import signal
import sys
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any

import uvloop

from control import state_paths
from control.sql.database import POOL_SIZE
from server.control_process.permissions import UMASK
from server.control_process.program import ControlServer
from server.control_process.store_ownership import CannotControl
from server.desired import heartbeat
from server.desired.child import ANOTHER, settings_of
from server.logs.lines import LOG, log_settings
from server.process.allocator import return_buffers
from server.settings.table import Settings

_PR_SET_PDEATHSIG = 1
_BAD_CONFIG = 78  # EX_CONFIG

_THREADS = 2 * POOL_SIZE
"""While a database that hangs keeps each of its connections waiting, files and git go on."""

_log = logging.getLogger(__name__)


def main() -> int:
    """Run until SIGTERM or the gateway's end; the exit status.

    75 when another control process serves the same state folder, 78 when it cannot start with
    these settings.
    """
    os.umask(UMASK)
    return_buffers()
    told: dict[str, Any] = json.load(sys.stdin)
    _die_with(int(told["parent"]))
    heartbeat.send(int(told["heartbeat"]))
    settings = settings_of(told)
    LOG.set_up(log_settings(settings))
    lock = _lock(settings)
    if lock is None:
        return ANOTHER
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings, told["server"]))
    finally:
        os.close(lock)


async def _serve(settings: Settings, server: str) -> int:
    stopping = asyncio.Event()
    loop = asyncio.get_running_loop()
    loop.set_default_executor(ThreadPoolExecutor(_THREADS, "control"))
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stopping.set)
    try:
        await ControlServer(settings, server, stopping).run()
    except CannotControl as error:
        _log.error("%s", error)
        return _BAD_CONFIG
    return 0


def _lock(settings: Settings) -> int | None:
    """Who holds it is the control process of this state folder; None while another one is."""
    path = state_paths.sockets(settings.state_dir) / state_paths.LOCK
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    return descriptor


def _die_with(parent: int) -> None:
    """Go when the gateway goes, however it goes."""
    with suppress(AttributeError):  # Linux alone has it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())

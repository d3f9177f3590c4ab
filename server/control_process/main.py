"""The control process, a child of the gateway (`server.desired.child`).

It owns the database, the git repositories and the admin port. Its settings come as the first
message of its parent.
"""

import asyncio
import fcntl
import logging
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import uvloop

from control import state_paths
from control.sql.engines import POOL_SIZE
from repository.process.parent import connect
from server.control_process.permissions import UMASK
from server.control_process.program import ControlServer
from server.control_process.store_ownership import CannotControl
from server.desired import heartbeat
from server.desired.child import ANOTHER
from server.desired.control_start import decode_start
from server.logs.lines import LOG, log_settings
from server.process.allocator import return_buffers
from server.settings.table import Settings

_BAD_CONFIG = 78  # EX_CONFIG

_THREADS = 2 * POOL_SIZE
"""While a database that hangs keeps each of its connections waiting, files and git go on."""

_log = logging.getLogger(__name__)


def main(channel_fd: int, heartbeat_fd: int, parent_pid: int) -> int:
    """Run until SIGTERM or the gateway's end; the exit status.

    75 when another control process serves the same state folder, 78 when it cannot start with
    these settings.
    """
    os.umask(UMASK)
    return_buffers()
    channel = connect(channel_fd, parent_pid)
    heartbeat.send(heartbeat_fd)
    start = decode_start(channel.receive().payload)
    settings = start.settings
    LOG.set_up(log_settings(settings))
    lock = _lock(settings)
    if lock is None:
        return ANOTHER
    try:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            return runner.run(_serve(settings, start.server))
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

"""The gateway as a process: its loop, its signals, its exit status. Called by `server.cli.main`."""

import asyncio
import logging
import signal
import sys
import threading

import uvloop

from repository.process.collector import no_collection
from server.banner import StartHint, no_hint
from server.listen_address import grpc_address
from server.logs.lines import LOG, log_settings
from server.process.allocator import keep_buffers
from server.process.immediate_exit import leave_now
from server.process.state_lock import StateFolderInUse, StateLock
from server.settings.table import Settings

SWITCH_INTERVAL_S = 0.001
"""How long a thread that computes in Python (a scan, a load) may keep the loop waiting for the
interpreter. Beside two such threads a timer of the loop was 2.0 ms late in the median, 5.7 ms with
Python's own 5 ms; CPU per request did not change (28 µs at concurrency 32)."""

_GIVEN_UP = ("load", "instance")
"""Threads left at the end run a load or an execution that nobody waits for any more, perhaps deep
in a runtime's native code: they must not keep the process, nor see the interpreter go."""

_log = logging.getLogger(__name__)


def serve(settings: Settings, hint: StartHint = no_hint) -> int:
    """Serve until SIGINT or SIGTERM; the exit status. `hint` follows the table at the start.

    0 after a drained shutdown; 1 when a port, the log file or a repository cannot be opened, when
    another server uses the state folder, or when a model failed to load and `exit_on_error` is
    set. A second signal ends the process at once.
    """
    try:
        LOG.set_up(log_settings(settings))
    except OSError as error:
        sys.stderr.write(
            f"modelyard: the log file '{settings.log_file}' ({settings.source('log_file')}) "
            f"cannot be opened: {error.strerror}\n"
        )
        return 1
    try:
        lock = StateLock(settings.state_dir, _addresses(settings))
    except StateFolderInUse as error:
        _log.error("%s", error)
        return 1
    sys.setswitchinterval(SWITCH_INTERVAL_S)
    keep_buffers(settings.cores)
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        status = runner.run(_serve(settings, hint))
    lock.release()
    if any(thread.name in _GIVEN_UP for thread in threading.enumerate()):
        leave_now(status)
    return status


def _addresses(settings: Settings) -> dict[str, str]:
    """Where the server is going to listen, by name."""
    listeners = (
        ("REST", settings.allow_http, settings.http_address, settings.http_port),
        ("gRPC", settings.allow_grpc, settings.grpc_address, settings.grpc_port),
        ("metrics", settings.allow_metrics, settings.metrics_address, settings.metrics_port),
        ("console", settings.allow_admin, settings.admin_address, settings.admin_port),
    )
    return {
        name: grpc_address(address, port) for name, allowed, address, port in listeners if allowed
    }


async def _serve(settings: Settings, hint: StartHint) -> int:
    with no_collection():
        from server import gateway

    return await gateway.serve(settings, _stop_on_signals(), hint)


def _stop_on_signals() -> asyncio.Event:
    """Set by the first SIGINT or SIGTERM; the second ends the process."""
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()

    def stop(number: int) -> None:
        if stopping.is_set():
            _log.warning("second signal: exiting at once")
            leave_now(128 + number)
        stopping.set()

    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop, number)
    return stopping

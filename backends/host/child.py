"""How every process of ours that hosts an instance begins."""

import ctypes
import faulthandler
import logging
import os
import signal
import socket
import sys

from backends.host.channel import Channel
from backends.host.heartbeat import answer_heartbeats
from repository.sandbox.orphans import adopt

_PR_SET_PDEATHSIG = 1
_worker = False


def is_worker() -> bool:
    """Whether this process hosts an instance, so that a model's own native code may be loaded."""
    return _worker


def begin(channel_fd: int, pulse_fd: int, parent_pid: int) -> Channel:
    """The channel to the server, with whom this process dies and whose pulses are answered."""
    global _worker
    _worker = True
    _die_with(parent_pid)
    adopt()  # what the model starts counts as its own however it is started
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGTERM, all_threads=False, chain=True)  # says where it hung
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    answer_heartbeats(socket.socket(fileno=pulse_fd))
    return Channel(socket.socket(fileno=channel_fd))


def _die_with(parent_pid: int) -> None:
    """Die when the server does, however it dies."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)

"""How every process of ours that hosts an instance begins."""

import faulthandler
import logging
import signal
import socket
import sys

from backends.process.health.heartbeat import answer_heartbeats
from repository.process.channel import Channel
from repository.process.parent import connect
from repository.sandbox.orphans import adopt

_worker = False


def is_worker() -> bool:
    """Whether this process hosts an instance, so that a model's own native code may be loaded."""
    return _worker


def begin(channel_fd: int, heartbeat_fd: int, parent_pid: int) -> Channel:
    """The channel to the server, with whom this process dies and whose heartbeats are answered."""
    global _worker
    _worker = True
    channel = connect(channel_fd, parent_pid)
    adopt()  # what the model starts counts as its own however it is started
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGTERM, all_threads=False, chain=True)  # says where it hung
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    answer_heartbeats(socket.socket(fileno=heartbeat_fd))
    return channel

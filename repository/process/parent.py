"""The parent of a child process, as the child sees it."""

import ctypes
import os
import signal
import socket
import sys

from repository.process.channel import Channel

_PR_SET_PDEATHSIG = 1


def connect(channel_fd: int, parent_pid: int) -> Channel:
    """The channel to the parent, with which this process ends from now on."""
    die_with(parent_pid)
    return Channel(socket.socket(fileno=channel_fd))


def die_with(parent_pid: int) -> None:
    """Be killed when the thread that started this process ends, however it ends; at once, if it
    already has. Source: prctl(2), PR_SET_PDEATHSIG."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)

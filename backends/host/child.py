"""How every process of ours that hosts an instance begins."""

import ctypes
import faulthandler
import logging
import os
import signal
import socket
import sys
import threading

from backends.host.channel import Channel

_PR_SET_PDEATHSIG = 1


def begin(channel_fd: int, pulse_fd: int, parent_pid: int) -> Channel:
    """The channel to the server, with whom this process dies and whose pulses are answered."""
    _die_with(parent_pid)
    faulthandler.enable(all_threads=False)
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]
    logging.basicConfig(stream=sys.stderr, level=logging.INFO, format="%(levelname)s %(message)s")
    pulse = socket.socket(fileno=pulse_fd)
    threading.Thread(target=_answer_pulses, args=(pulse,), name="pulse", daemon=True).start()
    return Channel(socket.socket(fileno=channel_fd))


def _die_with(parent_pid: int) -> None:
    """Die when the server does, however it dies."""
    ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent_pid:
        os._exit(1)


def _answer_pulses(pulse: socket.socket) -> None:
    while beat := pulse.recv(64):
        pulse.send(beat)

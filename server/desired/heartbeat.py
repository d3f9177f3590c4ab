"""Heartbeats over a pipe: sent from a thread of their own, counted by whoever started the process.

A thread, because an event loop that is busy is not stopped: threads are switched even while one
computes in Python.
"""

import os
import threading
from contextlib import suppress

from server.desired.heartbeat_timeout import BEAT_S

_MOST_BEATS = 4096


def send(descriptor: int) -> None:
    """Write a byte every second, from a daemon thread, until nobody reads any more."""
    os.set_inheritable(descriptor, False)
    os.set_blocking(descriptor, False)
    threading.Thread(target=_send_all, args=(descriptor,), name="heartbeat", daemon=True).start()


def _send_all(descriptor: int) -> None:
    pause = threading.Event()  # waits whatever the clock does; time.sleep() may raise beside a jump
    with suppress(BrokenPipeError):
        while True:
            with suppress(BlockingIOError):  # the reader is stopped, and has enough of them
                os.write(descriptor, b".")
            pause.wait(BEAT_S)


class Heartbeats:
    """The reading end; `close` it when the process has gone. Raises OSError when made."""

    def __init__(self) -> None:
        self._reading, self.writing = os.pipe2(os.O_CLOEXEC)
        os.set_blocking(self._reading, False)

    def close_writing(self) -> None:
        """Once the process has the descriptor `writing`."""
        if self.writing >= 0:
            os.close(self.writing)
            self.writing = -1

    def count(self) -> int:
        """How many came since the last look."""
        try:
            return len(os.read(self._reading, _MOST_BEATS))
        except BlockingIOError:
            return 0

    def close(self) -> None:
        self.close_writing()
        os.close(self._reading)

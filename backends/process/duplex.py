"""Both directions of a channel at once, each on a thread of its own.

For conversations that are more than question and answer: a worker that streams, and the server
that listens to it while it goes on asking.
"""

import os
import threading
from collections.abc import Callable
from queue import SimpleQueue

from msgspec import Struct

from backends.process.messages import encode
from repository.process.channel import Channel, ChannelMessage


class Duplex:
    """Takes over a channel nobody else reads or writes any more.

    `receive(received)` is called once per message, in order, on the reading thread; when it raises
    `ValueError` or `TypeError`, or the peer has closed the connection, reading ends with `gone()`.
    """

    def __init__(
        self,
        channel: Channel,
        name: str,
        receive: Callable[[ChannelMessage], None],
        gone: Callable[[], None],
    ) -> None:
        self._channel = channel
        self._receive = receive
        self._gone = gone
        self._letters: SimpleQueue[tuple[bytes, int] | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._read, name=f"{name} reader", daemon=True),
            threading.Thread(target=self._write, name=f"{name} writer", daemon=True),
        ]

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def post(self, payload: bytes, fd: int = -1) -> None:
        """Send bytes soon, in order; never blocks, from any thread, even from a destructor.
        `fd` is closed after it was sent."""
        self._letters.put((payload, fd))

    def send(self, message: Struct, fd: int = -1) -> None:
        """`post` a message of ours."""
        self._letters.put((encode(message), fd))

    def flush(self) -> None:
        """Send what was posted and stop writing; blocks. Nothing may be posted afterwards."""
        self._letters.put(None)
        self._threads[1].join()

    def join(self) -> None:
        """Wait for both threads, after the other side has gone; what was not sent never will be."""
        for thread in self._threads:
            thread.join()
        while not self._letters.empty():
            letter = self._letters.get()
            if letter is not None and letter[1] >= 0:
                os.close(letter[1])

    def _read(self) -> None:
        try:
            while True:
                self._receive(self._channel.receive())
        except (EOFError, OSError, ValueError, TypeError):
            self._gone()
        finally:
            self._letters.put(None)

    def _write(self) -> None:
        hung_up = False
        while (letter := self._letters.get()) is not None:
            payload, fd = letter
            try:
                if not hung_up:
                    self._channel.send(payload, fd)
            except OSError:
                hung_up = True  # the reading thread is told too, and ends both
            finally:
                if fd >= 0:
                    os.close(fd)

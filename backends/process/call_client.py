"""A worker's end of its connection for calls: whatever the model asks of its server goes out here.

`backends.python` asks; `server.bls` is at the other end. Any thread may ask; what comes back is
handed over on a thread of the client's, which starts with the first question, or where somebody
waits for their own answer: on a thread that does nothing else meanwhile, or in an asyncio loop.
Whoever reads sends nothing: the server stops reading while it has many answers that nobody takes.
"""

import asyncio
import itertools
import os
import socket
import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import TypeVar

from msgspec import Struct

from backends.process.answer_reader import AnswerReader
from backends.process.call_messages import (
    CallPart,
    ControlAnswer,
    MetricsQuery,
    MetricValues,
    decode_from_server,
)
from backends.process.messages import encode
from repository.process.channel import Channel, ChannelMessage

Answer = CallPart | ControlAnswer
AnswerT = TypeVar("AnswerT")
Deliver = Callable[[Answer | None, int], None]
"""Takes one message and the descriptor that came with it, which it owns; None when the server has
closed the connection. Must not block or raise."""


class CallClient:
    """The one client of a worker process; `read_metrics()` gives the series of its model."""

    def __init__(self, connection: socket.socket) -> None:
        self._channel = Channel(connection)
        self._sending = threading.Lock()
        self._numbers = itertools.count(1)
        self._open: dict[int, Deliver] = {}
        self._later: SimpleQueue[bytes | None] = SimpleQueue()
        self._metrics_due = False
        self._reading = False
        self._gone = False
        self._unread: set[int] = set()  # questions whose askers do not read
        self._in_loops: set[int] = set()  # those that tasks of a loop wait for, which reads
        self._reader = AnswerReader(
            self._channel,
            self._heed,
            self._lost,
            _end_worker,
            lambda: bool(self._unread),
            lambda: bool(self._in_loops),
        )
        self.read_metrics: Callable[[], MetricValues] = lambda: MetricValues({})

    def open(
        self,
        deliver: Deliver,
        *,
        will_wait: bool = False,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> int:
        """The number of a new question, whose answers go to `deliver` until `close`. `will_wait`:
        the calling thread is about to `wait` for its answer. `loop`: runs on the calling thread,
        and a task of it will wait."""
        number = next(self._numbers)
        self._open[number] = deliver
        if not self._reading:
            self._start()
        if will_wait:
            self._reader.expect()
        elif loop is not None and self._reader.read_on(loop):
            self._in_loops.add(number)
            self._reader.expect()
        else:
            self._unread.add(number)
            self._reader.wake()
        if self._gone and self._open.pop(number, None) is not None:
            deliver(None, -1)
        return number

    def wait(self, number: int, answers: "SimpleQueue[AnswerT]") -> AnswerT:
        """What `deliver` puts there for this question; blocks. Reads for others meanwhile."""
        if not self._reader.read_until(answers):
            self._unread.add(number)
            self._reader.wake()
        return answers.get()

    def close(self, number: int) -> None:
        """Whatever still comes for it is dropped."""
        self._open.pop(number, None)
        self._unread.discard(number)
        self._in_loops.discard(number)

    def send(self, message: Struct, fd: int = -1) -> None:
        """Send one message; blocks while the server reads nothing. `fd` is closed. A server that is
        gone ends every question by itself."""
        try:
            self._send(encode(message), fd)
        except OSError:
            return
        finally:
            if fd >= 0:
                os.close(fd)

    def post(self, message: Struct) -> None:
        """Send one message soon, after the first question; for destructors, which may run anywhere,
        in the middle of `send` too."""
        self._later.put(encode(message))

    def _send(self, payload: bytes, fd: int = -1) -> None:
        with self._sending:
            self._channel.send(payload, fd)

    def _send_later(self) -> None:
        """Send what was posted, and the metrics where `None` asks for them."""
        try:
            while True:
                payload = self._later.get()
                if payload is None:
                    self._metrics_due = False
                    payload = encode(self.read_metrics())
                self._send(payload)
        except OSError:  # the server is gone, and this process ends with it
            return

    def _start(self) -> None:
        with self._sending:
            if self._reading:
                return
            self._reading = True
            threading.Thread(target=self._send_later, name="call posts", daemon=True).start()
            self._reader.start()

    def _heed(self, received: ChannelMessage) -> None:
        payload, fd = received
        message = decode_from_server(payload)
        if isinstance(message, MetricsQuery):
            if not self._metrics_due:
                self._metrics_due = True
                self._later.put(None)
        elif (deliver := self._open.get(message.number)) is not None:
            deliver(message, fd)
        elif fd >= 0:
            os.close(fd)

    def _lost(self) -> None:
        self._gone = True
        for number in list(self._open):
            gone = self._open.pop(number, None)
            if gone is not None:
                gone(None, -1)


def _end_worker(error: Exception) -> None:
    """What came on the connection cannot be read, a descriptor for want of room among the open
    files for one: no answer would find its question any more. The server starts a new worker."""
    text = "the worker ends, because it cannot read the answer to a call of its model: "
    os.write(2, f"{text}{type(error).__name__}: {error}\n".encode())
    os._exit(1)


_client: CallClient | None = None


def connect_calls(descriptor: int) -> None:
    """Take over the connection that came with the load."""
    global _client
    _client = CallClient(socket.socket(fileno=descriptor))


def call_client() -> CallClient | None:
    """The worker's, None where the server takes no calls."""
    return _client

"""The streams of one worker, on its own side: what a decoupled model says goes to the server.

`backends.process.worker` asks through it for its next batch, and opens an outlet per member;
`backends.process.relay` is its counterpart in the server.
"""

import json
import os
from collections.abc import Callable, Sequence
from queue import SimpleQueue

from backends.process.duplex import Duplex
from backends.process.message_tensors import pack_message
from backends.process.messages import StreamPart, StreamRead, WorkerError, decode
from backends.response_sender import BoundedResponseSender
from backends.seam import ResponsePart, Tensors
from repository.process.channel import Channel, ChannelMessage


class StreamChannel:
    """A worker's channel when its model is decoupled: `receive` and `send` as a `Channel`'s, with
    streams beside them."""

    def __init__(self, channel: Channel, name: str, trouble: Callable[[Exception], WorkerError]):
        self._trouble = trouble
        self._open: dict[int, BoundedResponseSender] = {}
        self._inbox: SimpleQueue[ChannelMessage | None] = SimpleQueue()
        self._duplex = Duplex(channel, name, self._receive, self._gone)
        self._duplex.start()

    def receive(self) -> ChannelMessage:
        """Wait for the next message that is not about a stream. Raises `EOFError`."""
        received = self._inbox.get()
        if received is None:
            raise EOFError("the server has closed the connection")
        return received

    def send(self, payload: bytes, fd: int = -1) -> None:
        """Send one message soon; `fd` stays the caller's."""
        self._duplex.post(payload, os.dup(fd) if fd >= 0 else -1)

    def flush(self) -> None:
        """Send everything that was said so far; nothing can be said afterwards."""
        self._duplex.flush()

    def open(self, streams: Sequence[int]) -> list[BoundedResponseSender]:
        """An outlet per stream; each is forgotten when it has ended."""
        return [self._opened(stream) for stream in streams]

    def forget(self, streams: Sequence[int]) -> None:
        """The server has ended these: what the model still sends is dropped."""
        for stream in streams:
            outlet = self._open.pop(stream, None)
            if outlet is not None:
                outlet.end()

    def _opened(self, stream: int) -> BoundedResponseSender:
        outlet = BoundedResponseSender(lambda part: self._say(stream, part))
        self._open[stream] = outlet
        return outlet

    def _say(self, stream: int, part: ResponsePart) -> None:
        """On the model's thread, so that it may change its arrays as soon as `send` returns."""
        if part.last:
            self._open.pop(stream, None)
        trouble: WorkerError | None = None
        tensors: Tensors = {}
        if isinstance(part.result, Exception):
            trouble = self._trouble(part.result)
        elif part.result is not None:
            tensors = part.result
        blocks, data, fd = pack_message(tensors)
        parameters = json.dumps(dict(part.parameters)) if part.parameters else ""
        stream_part = StreamPart(
            stream, part.last, part.result is None, trouble, blocks, data, parameters
        )
        self._duplex.send(stream_part, fd)

    # on the reading thread

    def _receive(self, received: ChannelMessage) -> None:
        message = decode(received.payload)
        if not isinstance(message, StreamRead):
            self._inbox.put(received)
            return
        outlet = self._open.get(message.stream)
        if outlet is None:
            return
        for _ in range(message.taken):
            outlet.taken()
        if message.gone:
            outlet.cancel()

    def _gone(self) -> None:
        for outlet in list(self._open.values()):
            outlet.cancel()
        self._inbox.put(None)

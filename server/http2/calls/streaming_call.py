"""A gRPC call answered by a coroutine that reads and writes messages as it likes.

Opened by `server.http2.calls.service`. A client sends no faster than its messages are taken, and
what is written waits until the client reads. The coroutine is cancelled when nobody waits any more.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Awaitable, Callable

from server.http2.calls.grpc_call import NOT_ONE_MESSAGE, GrpcCall, opened
from server.http2.calls.head import RequestHead
from server.http2.calls.messages import OVERHEAD_BYTES, Assembler, Message
from server.http2.calls.status import ENDED_WELL, CallFailed
from server.http2.stall_detector import BEGINS, ENDS, PeerWait
from server.http2.stream import STREAM_WINDOW, Http2Stream

HELD_BYTES = STREAM_WINDOW
"""Whole messages of one call that may wait to be taken before the client must pause."""

_log = logging.getLogger(__name__)

Converse = Callable[["StreamingCall"], Awaitable[None]]
"""Reads and writes messages; returning ends the call with OK, CallFailed with its status."""


class StreamingCall(GrpcCall):
    """A call that a coroutine of its own answers. It is cancelled when nobody waits any more."""

    __slots__ = (
        "_all_here", "_assembler", "_held", "_messages", "_news", "_owed",
        "_single", "_task",
    )  # fmt: skip

    def __init__(
        self, stream: Http2Stream, head: RequestHead, limit: int, converse: Converse
    ) -> None:
        super().__init__(stream, head, limit)
        self._assembler = Assembler(limit, head.encoding, self.charge)
        self._messages: deque[Message] = deque()
        self._held = 0
        """Bytes of messages that wait to be taken."""
        self._owed = 0
        """Bytes received that the client was not given back yet."""
        self._all_here = False
        self._single = False
        self._news: asyncio.Future[None] | None = None
        self._task = asyncio.create_task(self._converse(converse))

    @property
    def task(self) -> "asyncio.Task[None]":
        return self._task

    def messages(self) -> "StreamingCall":
        """The request's messages, for `async for`; the client may send on as they are taken."""
        return self

    def __aiter__(self) -> "StreamingCall":
        return self

    async def __anext__(self) -> bytes:
        while not self._messages:
            if self._all_here:
                raise StopAsyncIteration
            self._news = asyncio.get_running_loop().create_future()
            await self._news
        message = self._take()
        plain = self._assembler.brief(message)
        return plain if plain is not None else await opened(self._assembler, message)

    async def message(self) -> bytes:
        """The only message. Raises CallFailed if there is another number of them."""
        self._single = True
        found: bytes | None = None
        async for message in self:
            if found is not None:
                raise CallFailed(*NOT_ONE_MESSAGE)
            found = message
            self.charge(len(found))
        if found is None:
            raise CallFailed(*NOT_ONE_MESSAGE)
        return found

    async def write(self, message: bytes) -> None:
        """Send one message; returns when little waits to be sent. Raises CallFailed."""
        prefix = self._prefix(message)
        stream = self._stream
        if stream is None:
            return
        if not self._began:
            self._began = True
            stream.sender.headers(stream, self.opening())
        refusal = stream.sender.data(stream, prefix, message)
        if refusal:
            raise CallFailed("RESOURCE_EXHAUSTED", refusal)
        if stream.backlog:
            await stream.room()

    async def _converse(self, converse: Converse) -> None:
        try:
            await converse(self)
        except CallFailed as failure:
            self.fail(failure.code, str(failure))
        except asyncio.CancelledError:
            self.fail("CANCELLED", "the call was cancelled")
            raise
        except Exception as error:  # noqa: BLE001 - our bug goes to the client and to the log
            _log.exception("a gRPC call failed unexpectedly")
            self.fail("INTERNAL", f"{type(error).__name__}: {error}. This is a bug.")
        else:
            self._end()

    def _end(self) -> None:
        stream = self._leave()
        if stream is not None:
            block = ENDED_WELL + self.trailers
            stream.sender.finish(stream, block if self._began else self.opening() + block)

    def _take(self) -> Message:
        message = self._messages.popleft()
        size = len(message[1]) + OVERHEAD_BYTES
        self._held -= size
        self.release(size)
        self._release()
        return message

    def _release(self) -> None:
        """Let the client send on, unless too many whole messages wait to be taken."""
        if self._held <= HELD_BYTES and self._owed and self._stream is not None:
            self._stream.release(self._owed)
            self._owed = 0

    # a Receiver

    def received(self, data: bytes, last: bool) -> None:
        if self._stream is None:
            return
        try:
            messages = self._assembler.feed(data)
        except CallFailed as failure:
            self._give_up(failure)
            return
        self._owed += len(data)
        self._held += sum(len(message) + OVERHEAD_BYTES for _, message in messages)
        self._messages.extend(messages)
        self._release()
        self._wake()

    def ended(self) -> None:
        if self._assembler.inside:
            self._give_up(CallFailed("INTERNAL", "the request ends inside a message"))
            return
        self._all_here = True
        self._wake()

    def awaits(self) -> PeerWait | None:
        """A stream may rest between messages; who takes one message waits for it."""
        if self._stream is None or self._all_here or self._owed:
            return None  # while the client is owed a window it could not send if it wanted
        if self._assembler.inside:
            return self._assembler.awaits()
        if not self._single:
            return None
        return ENDS if self._assembler.count else BEGINS

    def aborted(self) -> None:
        self._leave()
        self._cancel()

    def _give_up(self, failure: CallFailed) -> None:
        self.fail(failure.code, str(failure))
        self._cancel()

    def _cancel(self) -> None:
        self._task.cancel()

    def _wake(self) -> None:
        if self._news is not None and not self._news.done():
            self._news.set_result(None)

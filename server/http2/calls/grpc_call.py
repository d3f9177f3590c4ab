"""What all gRPC calls share: a head, a deadline, and a stream that is answered once.

Its two kinds are the unary call (`server.http2.calls.service`) and the streaming one
(`server.http2.calls.streaming_call`). Each ends exactly once, with messages and OK or with a
status; a client that goes cancels it.
"""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor

from server.http2.calls.head import Metadata, RequestHead
from server.http2.calls.messages import Assembler, Message
from server.http2.calls.status import ACCEPTED_ENCODINGS, CallFailed, answer_head, ended_badly
from server.http2.stream import Http2Stream
from server.request_ids import next_number

NOT_ONE_MESSAGE = ("UNIMPLEMENTED", "this method takes exactly one whole message")

_pool = ThreadPoolExecutor(2, "grpc-open")
"""Threads that do nothing else than undo the compression of messages, so that the loop goes on."""


class GrpcCall:
    """What all calls share: the head, the deadline, and a stream that is answered once."""

    __slots__ = (
        "_began",
        "_charged",
        "_deadline",
        "_limit",
        "_stream",
        "admission",
        "deadline_ns",
        "head",
        "number",
        "trailers",
    )
    logged = False
    """Whether an access log is told of the call."""

    def __init__(self, stream: Http2Stream, head: RequestHead, limit: int) -> None:
        self.head = head
        self.number = next_number()
        """What `server.request_ids` makes the id of the call from, if the client gave none."""
        self.admission: object = None
        """What the guard made of the head, once the call is open."""
        self.deadline_ns = 0
        """On `time.monotonic_ns`; 0 for none."""
        self.trailers = b""
        """A header block, of `server.http2.wire.hpack.literal`, that goes out with the status."""
        self._limit = limit
        self._charged = 0
        """Bytes of the connection's account that this call has: of messages not done with."""
        self._stream: Http2Stream | None = stream
        self._began = False
        self._deadline: asyncio.TimerHandle | None = None
        if head.timeout_s is not None:
            self.deadline_ns = time.monotonic_ns() + int(head.timeout_s * 1e9)
            loop = asyncio.get_running_loop()
            self._deadline = loop.call_later(head.timeout_s, self._expire)

    @property
    def metadata(self) -> Metadata:
        """What the client sent beside its messages."""
        return self.head.metadata

    @property
    def over(self) -> bool:
        """Whether the call has its status, or nobody waits for one."""
        return self._stream is None

    def opening(self) -> bytes:
        """The head of the answer."""
        return answer_head(self.number, self.head.client_id)

    def time_remaining(self) -> float | None:
        """Seconds until the deadline, not below 0; None if the client set none."""
        if not self.deadline_ns:
            return None
        return max(0.0, (self.deadline_ns - time.monotonic_ns()) / 1e9)

    def fail(self, code: str, text: str) -> None:
        """End the call with one of `server.http2.calls.status.CODES`. Without effect when over."""
        stream = self._leave()
        if stream is None:
            return
        block = ended_badly(code, text) + self.trailers
        if not self._began:
            block = self.opening() + block
            if code == "UNIMPLEMENTED":
                block += ACCEPTED_ENCODINGS
        stream.sender.finish(stream, block)

    def charge(self, size: int) -> None:
        """Have the call hold `size` bytes of the server's buffers, until it releases them or is
        over. Raises CallFailed."""
        if self._stream is None:
            return
        refusal = self._stream.account.charge(size)
        if refusal:
            raise CallFailed("RESOURCE_EXHAUSTED", refusal)
        self._charged += size

    def release(self, size: int) -> None:
        """Give back some of what was charged."""
        if self._stream is not None:
            self._charged -= size
            self._stream.account.release(size)

    def expired(self, text: str) -> None:
        """The request comes too slowly."""
        self.fail("DEADLINE_EXCEEDED", text)
        self._cancel()

    def _leave(self) -> Http2Stream | None:
        """The stream, for the last time; None when the call is over."""
        stream, self._stream = self._stream, None
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None
        if self._charged and stream is not None:
            stream.account.release(self._charged)
            self._charged = 0
        return stream

    def _expire(self) -> None:
        GrpcCall.fail(self, "DEADLINE_EXCEEDED", "Deadline Exceeded")
        self._cancel()

    def _cancel(self) -> None:
        """Stop what works on the answer; the call is over."""

    def _prefix(self, message: bytes) -> bytes:
        """What goes in front of a message. Raises CallFailed for one over the limit."""
        if len(message) > self._limit:
            text = f"Sent message larger than max ({len(message)} vs. {self._limit})"
            raise CallFailed("RESOURCE_EXHAUSTED", text)
        return b"\0" + len(message).to_bytes(4, "big")


def opened(assembler: Assembler, message: Message) -> "asyncio.Future[bytes]":
    """The message without its compression, when a thread has opened it; fails with CallFailed."""
    return asyncio.get_running_loop().run_in_executor(_pool, assembler.plain, message)

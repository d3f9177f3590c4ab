"""gRPC methods by path, and the call of one message that answers a unary one.

`server.http2.session` opens every request at the `GrpcService`. A unary method is a function: no
task, no future, no waiting; a client that goes, and a deadline that passes, cancel its call.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from server.http2.calls.grpc_call import NOT_ONE_MESSAGE, GrpcCall, opened
from server.http2.calls.head import RequestHead, read_head
from server.http2.calls.messages import PREFIX_BYTES, Assembler, Message
from server.http2.calls.status import ENDED_WELL, CallFailed, answer_head, ended_badly, refusal
from server.http2.calls.streaming_call import Converse, StreamingCall
from server.http2.stall_detector import BEGINS, ENDS, PeerWait
from server.http2.stream import Http2Stream, Receiver, StreamHead
from server.http2.wire.hpack import LIST_BYTES, Headers
from server.request_ids import next_number

SMALL_BYTES = 16 * 1024
"""A request up to this, whole in one frame, is not counted against the buffers: what waits for a
model is bounded by its queue (`--default-max-queue-size`), and nearly all requests are such."""

_log = logging.getLogger(__name__)

_OVERSIZED = RequestHead(
    "",
    fault=CallFailed("RESOURCE_EXHAUSTED", f"received metadata larger than max ({LIST_BYTES})"),
)


Answer = Callable[[bytes, "UnaryCall"], None]
"""Takes the request's message; answers by `finish` or `fail` now or later, and does not raise."""


@dataclass(frozen=True, slots=True)
class UnaryMethod:
    """A method answered by a function, as soon as its message is there."""

    answer: Answer


@dataclass(frozen=True, slots=True)
class StreamingMethod:
    """A method answered by a coroutine, from the moment it is called."""

    converse: Converse


Methods = Mapping[str, UnaryMethod | StreamingMethod]
"""By path: `/package.Service/Method`."""


Guard = Callable[[RequestHead], object]
"""Looks at the head of a call before any of its messages, and raises CallFailed to refuse it; what
it returns is the call's `admission`."""


class CallClasses(NamedTuple):
    """The classes of calls: of one message, and of streams."""

    call: "type[UnaryCall]"
    conversation: type[StreamingCall]


class GrpcService:
    """The methods of one server; messages of more than `limit` bytes are refused, both ways."""

    def __init__(
        self,
        methods: Methods,
        limit: int,
        guard: Guard | None = None,
        kinds: CallClasses | None = None,
    ) -> None:
        self._methods = methods
        self._limit = limit
        self._guard = guard
        self._call, self._conversation = kinds or PLAIN_KINDS
        self._tasks: set[asyncio.Task[None]] = set()

    def read(self, headers: Headers) -> RequestHead:
        return read_head(headers)

    def oversized(self) -> RequestHead:
        return _OVERSIZED

    def open(self, stream: Http2Stream, head: StreamHead) -> Receiver:
        assert isinstance(head, RequestHead)
        method = None
        if head.fault is None and not head.refused_with:
            method = self._methods.get(head.path)
        if method is None:
            stream.sender.finish(stream, _refusal(head))
            return _DEAF
        try:
            admission = self._guard(head) if self._guard is not None else None
        except CallFailed as fault:
            opening = answer_head(next_number(), head.client_id)
            block = opening + ended_badly(fault.code, str(fault), fault.metadata)
            stream.sender.finish(stream, block)
            return _DEAF
        if isinstance(method, UnaryMethod):
            call: UnaryCall | StreamingCall = self._call(stream, head, self._limit, method.answer)
        else:
            call = self._converse(stream, head, method.converse)
        call.admission = admission
        return call

    async def idle(self) -> None:
        """Return when every coroutine of a call has ended."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _converse(
        self, stream: Http2Stream, head: RequestHead, converse: Converse
    ) -> StreamingCall:
        conversation = self._conversation(stream, head, self._limit, converse)
        self._tasks.add(conversation.task)
        conversation.task.add_done_callback(self._tasks.discard)
        return conversation


def _refusal(head: RequestHead) -> bytes:
    if head.refused_with:
        return refusal(head.refused_with)
    fault = head.fault or CallFailed("UNIMPLEMENTED", f"Method not found! ({head.path})")
    return answer_head(next_number(), head.client_id) + ended_badly(fault.code, str(fault))


class _DiscardingReceiver:
    """Reads nothing: the answer is given."""

    def received(self, data: bytes, last: bool) -> None: ...

    def ended(self) -> None: ...

    def aborted(self) -> None: ...

    def awaits(self) -> None:
        return None

    def expired(self, text: str) -> None: ...


_DEAF = _DiscardingReceiver()


class UnaryCall(GrpcCall):
    """A call of one message and one answer."""

    __slots__ = ("_all_here", "_answer", "_assembler", "_message", "_opening", "on_cancel")

    def __init__(self, stream: Http2Stream, head: RequestHead, limit: int, answer: Answer) -> None:
        super().__init__(stream, head, limit)
        self.on_cancel: Callable[[], None] | None = None
        """Called once if nobody waits for the answer any more; neither answer then."""
        self._answer = answer
        self._assembler: Assembler | None = None
        self._message: bytes | None = None
        self._opening: asyncio.Future[bytes] | None = None
        """The message while a thread undoes its compression."""
        self._all_here = False

    def finish(self, message: bytes) -> None:
        """Answer. Without effect when the call is over."""
        try:
            prefix = self._prefix(message)
        except CallFailed as failure:
            self.fail(failure.code, str(failure))
            return
        self.on_cancel = None
        stream = self._leave()
        if stream is not None:
            sender, trailers, head = stream.sender, self.trailers, self.opening()
            refusal = sender.answer(stream, head, prefix, message, ENDED_WELL + trailers)
            if refusal:
                block = head + ended_badly("RESOURCE_EXHAUSTED", refusal) + trailers
                sender.finish(stream, block)

    def fail(self, code: str, text: str) -> None:
        super().fail(code, text)
        self.on_cancel = None

    # a Receiver

    def received(self, data: bytes, last: bool) -> None:
        if self._stream is None:
            return
        is_whole = last and self._assembler is None and self._is_whole(data)
        if is_whole and len(data) <= SMALL_BYTES:
            self._message = data[PREFIX_BYTES:]
            return
        try:
            if is_whole:
                self.charge(len(data))
                self._message = data[PREFIX_BYTES:]
            else:
                self._stream.release(len(data))
                self._assemble(data)
        except CallFailed as failure:
            self.fail(failure.code, str(failure))

    def ended(self) -> None:
        if self._stream is None:
            return
        has_one = self._message is not None or self._opening is not None
        if not has_one or (self._assembler is not None and self._assembler.inside):
            self.fail(*NOT_ONE_MESSAGE)
            return
        self._all_here = True
        self._go_on()

    def awaits(self) -> PeerWait | None:
        if self._stream is None or self._all_here:
            return None
        assembler = self._assembler
        if assembler is None:
            return BEGINS
        return assembler.awaits() if assembler.inside else ENDS

    def aborted(self) -> None:
        self._leave()
        self._cancel()

    def _go_on(self) -> None:
        """Have the message answered, if all of the request is here."""
        if self._message is None or not self._all_here:
            return
        message, self._message = self._message, None
        try:
            self._answer(message, self)
        except Exception as error:  # noqa: BLE001 - our bug goes to the client and to the log
            _log.exception("a gRPC call failed unexpectedly")
            self.fail("INTERNAL", f"{type(error).__name__}: {error}. This is a bug.")

    def _is_whole(self, data: bytes) -> bool:
        """Whether it is one plain message, as it is in nearly every request."""
        size = len(data) - PREFIX_BYTES
        return (
            0 <= size <= self._limit
            and data[0] == 0
            and size == int.from_bytes(data[1:PREFIX_BYTES], "big")
        )

    def _assemble(self, data: bytes) -> None:
        if self._assembler is None:
            self._assembler = Assembler(self._limit, self.head.encoding, self.charge)
        for message in self._assembler.feed(data):
            if self._message is not None or self._opening is not None:
                raise CallFailed(*NOT_ONE_MESSAGE)
            self._message = self._assembler.brief(message)
            if self._message is not None:
                self._charge_inflated(message, self._message)
            else:
                self._opening = opened(self._assembler, message)
                self._opening.add_done_callback(self._opened)

    def _opened(self, opening: "asyncio.Future[bytes]") -> None:
        if opening.cancelled():
            return
        failure = opening.exception()
        if self._stream is None:
            return
        if failure is not None:
            code = failure.code if isinstance(failure, CallFailed) else "INTERNAL"
            self.fail(code, str(failure))
            return
        self._opening, self._message = None, opening.result()
        try:
            self.charge(len(self._message))
        except CallFailed as refused:
            self.fail(refused.code, str(refused))
        else:
            self._go_on()

    def _charge_inflated(self, message: Message, plain: bytes) -> None:
        """What was compressed counts as it is now as well. Raises CallFailed."""
        compressed, _ = message
        if compressed:
            self.charge(len(plain))

    def _leave(self) -> Http2Stream | None:
        opening, self._opening = self._opening, None
        if opening is not None:
            opening.cancel()
        return super()._leave()

    def _cancel(self) -> None:
        cancel, self.on_cancel = self.on_cancel, None
        if cancel is not None:
            cancel()


PLAIN_KINDS = CallClasses(UnaryCall, StreamingCall)

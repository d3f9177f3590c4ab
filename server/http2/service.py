"""From the head of a request to the call that answers it: one table, path → method.

`server.http2.session` opens every request here.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from server.http2.head import RequestHead, read_head
from server.http2.hpack import LIST_BYTES, Headers
from server.http2.status import CallFailed, answer_head, ended_badly, refusal
from server.http2.stream import Http2Stream, Receiver, StreamHead
from server.http2.streaming_call import Converse, StreamingCall
from server.http2.unary_call import Answer, UnaryCall
from server.request_ids import next_number

_OVERSIZED = RequestHead(
    "",
    fault=CallFailed("RESOURCE_EXHAUSTED", f"received metadata larger than max ({LIST_BYTES})"),
)


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

    call: type[UnaryCall]
    conversation: type[StreamingCall]


PLAIN_KINDS = CallClasses(UnaryCall, StreamingCall)


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

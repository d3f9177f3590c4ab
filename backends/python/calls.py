"""Calls from a python model to other models (BLS): out through the worker's `CallClient` and back.

`InferenceRequest.exec` and `async_exec` come here. Whatever a call ends with other than responses
comes back as a response with an error, as in Triton; only what the script itself got wrong raises.
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from queue import Empty, SimpleQueue
from typing import Any, NamedTuple

import numpy as np

from backends.process.call_client import Answer, CallClient, call_client
from backends.process.call_messages import CallCancel, CallPart, CallRead, CallRequest
from backends.process.health.heartbeat import progressed
from backends.process.layout import unpack
from backends.process.message_tensors import pack_message
from backends.process.region import message_region
from backends.python.model_errors import TritonError, TritonModelException
from backends.python.response import InferenceResponse
from backends.python.tensor import Tensor, protocol_array
from backends.response_sender import WINDOW
from repository.config.tensors import Array

CAUSES: ContextVar[tuple[int, ...]] = ContextVar("causes", default=())
"""The numbers of the requests whose coroutine runs; empty where nothing tells them."""

_TELL_EVERY = WINDOW // 4
_GONE = InferenceResponse(
    error=TritonError("the server has closed the connection", TritonError.UNAVAILABLE)
)


class CallTerms(NamedTuple):
    """A call as the script wrote it; `causes`: the requests that it says it is for."""

    model: str
    version: int
    id: str
    correlation_id: int | str
    flags: int
    timeout_us: int
    parameters: Mapping[str, Any]
    requested_outputs: Sequence[str]
    inputs: Sequence[Tensor]
    causes: tuple[int, ...]


class ResponseIterator:
    """The responses of one call, in order, by `for` or by `async for`; ends with the answer."""

    def __init__(self, terms: CallTerms) -> None:
        self._parts: SimpleQueue[_ReceivedPart] = SimpleQueue()
        self._waiter: tuple[asyncio.AbstractEventLoop, asyncio.Future[None]] | None = None
        self._ended = False
        self._read = 0
        self._client = _require_client()
        self._number = self._client.open(self._deliver)
        _send(self._client, self._number, terms, stream=True)

    def __iter__(self) -> "ResponseIterator":
        return self

    def __next__(self) -> InferenceResponse:
        if self._ended:
            raise StopIteration
        response = self._taken(self._parts.get())
        if response is None:
            raise StopIteration
        return response

    def __aiter__(self) -> "ResponseIterator":
        return self

    async def __anext__(self) -> InferenceResponse:
        while not self._ended:
            with contextlib.suppress(Empty):
                response = self._taken(self._parts.get_nowait())
                if response is None:
                    break
                return response
            loop = asyncio.get_running_loop()
            self._waiter = (loop, loop.create_future())
            if self._parts.empty():
                await self._waiter[1]
        raise StopAsyncIteration

    def cancel(self) -> None:
        """Nobody reads on; the called model is told, and no further response comes."""
        if not self._ended:
            self._ended = True
            self._client.close(self._number)
            self._client.post(CallCancel(self._number))

    def __del__(self) -> None:
        if hasattr(self, "_number"):
            self.cancel()

    def _taken(self, received: "_ReceivedPart") -> InferenceResponse | None:
        """The response of a part; None for an end that says no more."""
        progressed()
        if received.part is None:
            self._ended = True
            return _GONE
        self._read += 1
        if received.part.last:
            self._ended = True
            self._client.close(self._number)
        elif self._read % _TELL_EVERY == 0:
            self._client.send(CallRead(self._number, _TELL_EVERY))
        return _response(received)

    def _deliver(self, answer: Answer | None, fd: int) -> None:
        self._parts.put(_received(answer, fd))
        waiter, self._waiter = self._waiter, None
        if waiter is not None:
            loop, future = waiter
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
                loop.call_soon_threadsafe(_wake, future)


def call(terms: CallTerms) -> InferenceResponse:
    """The one response; blocks."""
    client = _require_client()
    answers: SimpleQueue[_ReceivedPart] = SimpleQueue()
    number = client.open(lambda answer, fd: answers.put(_received(answer, fd)), will_wait=True)
    try:
        _send(client, number, terms, stream=False)
        received = client.wait(number, answers)
    finally:
        client.close(number)
    return _only(received)


async def call_async(terms: CallTerms) -> InferenceResponse:
    """The one response; cancelling the task cancels the call."""
    client, loop = _require_client(), asyncio.get_running_loop()
    answer: asyncio.Future[_ReceivedPart] = loop.create_future()

    def deliver(part: Answer | None, fd: int) -> None:
        received = _received(part, fd)
        if asyncio._get_running_loop() is loop:  # it reads by itself
            _settle(answer, received)
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits
            loop.call_soon_threadsafe(_settle, answer, received)

    number = client.open(deliver, loop=loop)
    try:
        _send(client, number, terms, stream=False)
        return _only(await answer)
    except asyncio.CancelledError:
        client.send(CallCancel(number))
        raise
    finally:
        client.close(number)


async def stream_async(terms: CallTerms) -> ResponseIterator:
    """The call, under way."""
    return ResponseIterator(terms)


class _ReceivedPart(NamedTuple):
    """A part of an answer, None when the server has gone, and where its tensors lie."""

    part: CallPart | None
    region: Array


_NOWHERE = np.empty(0, np.uint8)


def _received(answer: Answer | None, fd: int) -> _ReceivedPart:
    if not isinstance(answer, CallPart):
        return _ReceivedPart(None, _NOWHERE)
    if fd >= 0:
        return _ReceivedPart(answer, message_region(b"", fd))
    return _ReceivedPart(answer, np.frombuffer(bytearray(answer.data), np.uint8))


def _only(received: _ReceivedPart) -> InferenceResponse:
    progressed()
    return _response(received) or InferenceResponse()


def _response(received: _ReceivedPart) -> InferenceResponse | None:
    part = received.part
    if part is None:
        return _GONE
    if part.error is not None:
        code = getattr(TritonError, part.error.code, TritonError.INTERNAL)
        return InferenceResponse(error=TritonError(part.error.text, code))
    if part.empty:
        return InferenceResponse()
    outputs = unpack(part.blocks, 1, received.region)[0]
    parameters = json.loads(part.parameters) if part.parameters else None
    return InferenceResponse(
        [Tensor(name, array) for name, array in outputs.items()], parameters=parameters
    )


def _send(client: CallClient, number: int, terms: CallTerms, stream: bool) -> None:
    """Raises `TritonModelException` for what cannot be sent, and forgets the call then."""
    try:
        arrays = {tensor.name(): protocol_array(tensor.as_numpy()) for tensor in terms.inputs}
        blocks, data, fd = pack_message(arrays)
        client.send(
            CallRequest(
                number,
                terms.model,
                terms.version,
                terms.id,
                terms.correlation_id,
                terms.flags,
                terms.timeout_us,
                json.dumps(dict(terms.parameters)) if terms.parameters else "",
                tuple(terms.requested_outputs),
                stream,
                terms.causes or CAUSES.get(),
                blocks,
                data,
            ),
            fd,
        )
    except (ValueError, TypeError, OverflowError) as error:
        client.close(number)
        raise TritonModelException(
            f"the request to model '{terms.model}' cannot be sent: {error}"
        ) from error


def _require_client() -> CallClient:
    client = call_client()
    if client is None:
        raise TritonModelException("this process takes no calls to other models: it has no server")
    return client


def _wake(future: "asyncio.Future[None]") -> None:
    if not future.done():
        future.set_result(None)


def _settle(answer: "asyncio.Future[_ReceivedPart]", received: _ReceivedPart) -> None:
    if not answer.done():
        answer.set_result(received)

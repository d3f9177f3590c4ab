"""ModelStreamInfer: many requests in flight on one stream, answered in the order they came, but
for decoupled models, whose responses go out as they are made.

Opened by `server.grpc.door`. A reader decodes and submits; the writer carries answers back. A
request that fails is an `error_message` and the stream goes on, unless the client sent the
metadata `triton_grpc_error: true`: then the first error ends it with that error's status.
"""

import asyncio
import time
from dataclasses import dataclass

from tritonclient.grpc import service_pb2 as pb

from control.access.scopes import Action
from schedulers.reply import Reply
from schedulers.request import InferRequest, InferResponse
from server.access.asks import Ask
from server.codec.form import PLAIN, Form
from server.codec.forwarding import Forwarding, forward
from server.codec.grpc_infer import EMPTY_FINAL, decode, fill
from server.dataplane import STOPPING, DataPlane
from server.errors import NotReady
from server.grpc.admission import authorise, holder_of
from server.grpc.calls import EXPECTED, parse
from server.grpc.porch import text_metadata
from server.grpc.routed import name_arm, picked
from server.grpc.trace import received_by
from server.http2.conversation import Conversation
from server.routing.table import HEADER_NAME, Target
from server.routing.trials import STAMP_NAME
from server.served import Served
from server.trace.record import Trace, following

IN_FLIGHT = 256
"""Requests one stream may have unanswered; the next is not read from the wire before."""
IN_FLIGHT_BYTES = 16 << 20
"""And their size: a client that reads slowly, or not at all, has us hold little more than this."""

_FINAL = "triton_final_response"


@dataclass(slots=True)
class _Asked:
    """One request of the stream: submitted (`served`, `reply`) or refused at once (`error`)."""

    id: str
    size_bytes: int
    served: Served | None = None
    reply: Reply | None = None
    error: Exception | None = None
    empty_final: bool = False
    trace: Trace | None = None
    form: Form = PLAIN
    target: Target | None = None


class _Unanswered:
    """How much of a stream was read and is not answered yet."""

    def __init__(self) -> None:
        self._count = 0
        self._size_bytes = 0
        self._room = asyncio.Event()
        self._room.set()

    async def room(self) -> None:
        """Return when one more may be read."""
        await self._room.wait()

    def add(self, size_bytes: int) -> None:
        self._count += 1
        self._size_bytes += size_bytes
        if self._count >= IN_FLIGHT or self._size_bytes >= IN_FLIGHT_BYTES:
            self._room.clear()

    def remove(self, size_bytes: int) -> None:
        self._count -= 1
        self._size_bytes -= size_bytes
        if self._count < IN_FLIGHT and self._size_bytes < IN_FLIGHT_BYTES:
            self._room.set()


class InferStream:
    """One open stream. It ends when the client has half-closed and every answer is written."""

    def __init__(
        self, dataplane: DataPlane, call: Conversation, forwarding: Forwarding | None = None
    ) -> None:
        self._dataplane = dataplane
        self._forwarding = forwarding
        self._call = call
        self._unanswered = _Unanswered()
        self._asked: asyncio.Queue[_Asked | None] = asyncio.Queue()
        self._open: set[Reply] = set()
        self._writing = asyncio.Lock()
        self._errors_end_it = ("triton_grpc_error", "true") in call.metadata
        self._holder = holder_of(call)
        self._reader: asyncio.Task[None] | None = None
        self._stopping = False

    def stop(self) -> None:
        """Read no more; answer what was read, then end the stream with UNAVAILABLE."""
        self._stopping = True
        if self._reader is not None:
            self._reader.cancel()

    async def run(self) -> None:
        """Serve the stream to its end; when the client goes, its open requests are cancelled."""
        try:
            async with asyncio.TaskGroup() as beside:
                self._reader = beside.create_task(self._read(beside))
                while (asked := await self._asked.get()) is not None:
                    await self._answer(asked)
        except ExceptionGroup as failed:
            raise failed.exceptions[0] from None
        finally:
            for reply in self._open:
                reply.cancel()
        if self._stopping:
            raise NotReady(STOPPING)

    async def _read(self, beside: asyncio.TaskGroup) -> None:
        """Submit what comes; decoupled requests are answered `beside` the others, which queue."""
        try:
            async for data in self._call.messages():
                asked = self._submit(data)
                del data  # decoding has copied it; it must not wait beside its copy
                self._unanswered.add(asked.size_bytes)
                if asked.served is not None and asked.served.signature.decoupled:
                    beside.create_task(self._answer(asked))
                else:
                    self._asked.put_nowait(asked)
                await self._unanswered.room()
        finally:
            self._asked.put_nowait(None)

    def _submit(self, data: bytes) -> _Asked:
        asked = _Asked("", len(data))
        try:
            message = parse(pb.ModelInferRequest, data)
            asked.id = message.id
            if self._holder is not None:
                self._admit(message.model_name)
            served, request, asked.form = self._admitted(message, asked)
            asked.empty_final = (
                EMPTY_FINAL in message.parameters and message.parameters[EMPTY_FINAL].bool_param
            )
            if self._holder is not None:
                request.principal = self._holder.principal.id
            request.deadline_ns = self._call.deadline_ns
            if self._forwarding is not None:
                forward(request, self._forwarding, text_metadata(self._call.head))
            if self._dataplane.tracing.on:
                received = received_by(self._call, request)
                asked.reply, asked.trace = self._dataplane.submit_followed(
                    served, request, received, asked.target
                )
            else:
                asked.reply = self._dataplane.submit(served, request, asked.target)
            asked.served = served
            self._open.add(asked.reply)
        except EXPECTED as error:
            asked.error = error
        return asked

    def _admitted(
        self, message: pb.ModelInferRequest, asked: _Asked
    ) -> tuple[Served, InferRequest, Form]:
        """Who answers, and the request as that version takes it; a route picks for each message."""
        dataplane, arrived_ns = self._dataplane, time.monotonic_ns()
        shared = dataplane.shared_memory
        route = dataplane.route_of(message.model_name, message.model_version)
        if route is None:
            served = dataplane.find(message.model_name, message.model_version)
            return served, *decode(message, served.signature, arrived_ns, shared)
        target = picked(dataplane, route, self._call, self._holder, message)
        served = dataplane.find_target(target)
        found = decode(message, served.signature, arrived_ns, shared)
        if found.request.sequence is not None:
            meant, target = target, dataplane.routing.stay(target, found.request.sequence)
            if target.key != meant.key:
                served = dataplane.find_target(target)
                found = decode(message, served.signature, arrived_ns, shared)
        name_arm(self._call, target)
        asked.target = target
        return served, *found

    def _admit(self, model: str) -> None:
        """Each message is a request of its own, and the token may have changed since the last.

        Raises Unauthenticated, RateLimited, Forbidden.
        """
        gate = self._dataplane.gate
        self._holder = gate.still(self._holder)
        gate.charge(self._holder)
        authorise(self._dataplane, self._holder, Ask(Action.INFER, model))

    async def _answer(self, asked: _Asked) -> None:
        try:
            with following(asked.trace):
                await self._answer_well(asked)
        except EXPECTED as error:
            if self._errors_end_it:
                raise
            await self._say(_error(asked, error).SerializeToString())
        if asked.reply is not None:
            self._open.discard(asked.reply)
        self._unanswered.remove(asked.size_bytes)

    async def _answer_well(self, asked: _Asked) -> None:
        """Raises what the request failed with."""
        if asked.error is not None:
            raise asked.error
        assert asked.served is not None
        assert asked.reply is not None
        if asked.served.signature.decoupled:
            await self._write_all(asked, asked.served, asked.reply)
        else:
            await self._write(asked, await asked.reply.one(), asked.served, final=True)

    async def _write_all(self, asked: _Asked, served: Served, reply: Reply) -> None:
        """A decoupled model's responses; its end alone is written only where it was asked for."""
        ended = False
        async for response in reply:
            ended = response.last
            await self._write(asked, response, served, final=ended)
        if not ended and asked.empty_final:
            message = _named(asked.id, served)
            message.infer_response.parameters[_FINAL].bool_param = True
            await self._say(message.SerializeToString())

    async def _write(
        self, asked: _Asked, response: InferResponse, served: Served, *, final: bool
    ) -> None:
        if asked.trace is not None:
            asked.trace.answered(response)
            asked.trace.sending()
        await self._say(_answer(response, served, asked, final))
        if asked.trace is not None:
            asked.trace.sent()

    async def _say(self, message: bytes) -> None:
        async with self._writing:  # one at a time may wait for a client that reads slowly
            await self._call.write(message)


def _answer(response: InferResponse, served: Served, asked: _Asked, final: bool) -> bytes:
    """The message on the wire; only this form of it waits for a client that reads slowly."""
    message = _named(response.id, served)
    fill(message.infer_response, response, served.signature, asked.form)
    message.infer_response.parameters[_FINAL].bool_param = final
    if asked.target is not None:
        message.infer_response.parameters[HEADER_NAME].string_param = asked.target.label
        if asked.target.stamp:
            message.infer_response.parameters[STAMP_NAME].string_param = asked.target.stamp
    written: bytes = message.SerializeToString()
    return written


def _named(request_id: str, served: Served) -> pb.ModelStreamInferResponse:
    message = pb.ModelStreamInferResponse()
    answer = message.infer_response
    answer.id = request_id
    answer.model_name = served.version.name
    answer.model_version = str(served.version.number)
    return message


def _error(asked: _Asked, error: Exception) -> pb.ModelStreamInferResponse:
    """Refused before scheduling: the id alone; failed later: who failed, and that it is over."""
    if asked.served is None:
        message = pb.ModelStreamInferResponse()
        message.infer_response.id = asked.id
    else:
        message = _named(asked.id, asked.served)
        message.infer_response.parameters[_FINAL].bool_param = True
    message.error_message = str(error)
    return message

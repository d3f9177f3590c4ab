"""ModelStreamInfer: many requests in flight on one stream, answered in the order they came, but
for decoupled models, whose responses go out as they are made.

Opened by `server.grpc.service`. A reader decodes and submits; the writer carries answers back. A
request that fails is an `error_message` and the stream goes on, unless the client sent the
metadata `triton_grpc_error: true`: then the first error ends it with that error's status. The k-th
request has the id of the call and `.k`.
"""

import asyncio
import time
from functools import partial

from tritonclient.grpc import service_pb2 as pb

from schedulers.reply import Reply
from schedulers.request import InferResponse
from server.codec.forwarding import HeaderForwarding
from server.codec.grpc_infer import EMPTY_FINAL, decode, fill, parameter_of
from server.codec.output_format import PLAIN, InferBody
from server.dataplane import DataPlane
from server.errors import NotReady
from server.grpc.admission import holder_of
from server.grpc.calls import EXPECTED, parse
from server.grpc.grpc_inference import GrpcInference, name_arm
from server.http2.calls.status import CallFailed
from server.http2.calls.streaming_call import StreamingCall
from server.process.lifecycle import STOPPING
from server.request_ids import REQUEST_ID, id_text
from server.routing.experiments.route_experiments import STAMP_NAME
from server.routing.table import HEADER_NAME
from server.served_version import ServedVersion
from server.shared_memory.regions import SharedMemory
from server.trace.record import following

IN_FLIGHT = 256
"""Requests one stream may have unanswered; the next is not read from the wire before."""
IN_FLIGHT_BYTES = 16 << 20
"""And their size: a client that reads slowly, or not at all, has us hold little more than this."""

_FINAL = "triton_final_response"

NAMES_REQUESTS = "x-request-ids"
"""Metadata: with the value "true", each response says its request's id as a parameter."""


class _StreamInference(GrpcInference):
    """One request of the stream: submitted (`served`, `reply`) or refused at once (`error`)."""

    __slots__ = (
        "_shared",
        "ahead_bytes",
        "empty_final",
        "error",
        "form",
        "id",
        "reply",
        "served",
        "size_bytes",
    )

    def __init__(
        self,
        call: StreamingCall,
        size_bytes: int,
        part: int,
        shared: SharedMemory,
        forwarding: HeaderForwarding | None,
    ) -> None:
        super().__init__("", "", forwarding, time.monotonic_ns(), call.deadline_ns, call.number)
        self.part = part
        self.client_id = call.head.client_id
        self.call = call
        self.message = None
        self._shared = shared
        self.size_bytes = size_bytes
        self.ahead_bytes = 0
        self.id = ""
        self.empty_final = False
        self.form = PLAIN
        self.served: ServedVersion | None = None
        self.reply: Reply | None = None
        self.error: Exception | None = None

    def read(self, data: bytes) -> None:
        """Whom it asks, and how it wants its answer. Raises InvalidRequest."""
        message = self.message = parse(pb.ModelInferRequest, data)
        self.id, self.model, self.version = message.id, message.model_name, message.model_version
        self.empty_final = parameter_of(message, EMPTY_FINAL) is True

    def decode(self, served: ServedVersion) -> InferBody:
        body = decode(self.message, served.signature, self._shared)
        self.served, self.form = served, body.form
        if self.target is not None:
            name_arm(self.call, self.target)
        return body

    def refused(self, error: Exception) -> None:
        """Its trace ends with its answer, which may have to wait for those before it."""


class _StreamBacklog:
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
        self, dataplane: DataPlane, call: StreamingCall, forwarding: HeaderForwarding | None = None
    ) -> None:
        self._dataplane = dataplane
        self._forwarding = forwarding
        self._call = call
        self._unanswered = _StreamBacklog()
        self._inferences: asyncio.Queue[_StreamInference | None] = asyncio.Queue()
        self._open: set[Reply] = set()
        self._writing = asyncio.Lock()
        self._errors_end_it = ("triton_grpc_error", "true") in call.metadata
        self._holder = holder_of(call)
        self._reader: asyncio.Task[None] | None = None
        self._stopping = False
        self._parts = 0
        """Requests that came."""
        self._names_requests = (NAMES_REQUESTS, "true") in call.metadata
        self._waits_for_client = False

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
                while (inference := await self._inferences.get()) is not None:
                    await self._answer(inference)
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
                self._call.charge(len(data))  # until it is answered
                inference = self._submit(data)
                del data  # decoding has copied it; it must not wait beside its copy
                self._unanswered.add(inference.size_bytes)
                if inference.served is not None and inference.served.signature.decoupled:
                    beside.create_task(self._answer(inference))
                else:
                    self._inferences.put_nowait(inference)
                await self._unanswered.room()
        finally:
            self._inferences.put_nowait(None)

    def _submit(self, data: bytes) -> _StreamInference:
        dataplane = self._dataplane
        self._parts += 1
        inference = _StreamInference(
            self._call, len(data), self._parts, dataplane.shared_memory, self._forwarding
        )
        try:
            inference.read(data)
            if self._holder is not None:
                inference.held_by(self._dataplane.authorizer.readmit(self._holder))
            reply = inference.reply = dataplane.infer(inference)
        except EXPECTED as error:
            inference.error, inference.served = error, None
        else:
            self._open.add(reply)
            if inference.served is not None and not inference.served.signature.decoupled:
                reply.watch(partial(self._count_ahead, inference))
        inference.message = (
            None  # it must not wait beside what it was decoded to, nor be kept refused
        )
        return inference

    def _count_ahead(self, inference: _StreamInference, reply: Reply) -> None:
        """An answer that is there before its turn, while the client takes none, is kept as well."""
        response = reply.unread
        if not self._waits_for_client or response is None:
            return
        size = sum(tensor.nbytes for tensor in response.outputs.values())
        try:
            self._call.charge(size)
        except CallFailed as refused:
            inference.error, inference.reply = refused, None
            self._open.discard(reply)
        else:
            inference.ahead_bytes = size

    async def _answer(self, inference: _StreamInference) -> None:
        try:
            with following(inference.trace):
                await self._answer_well(inference)
        except EXPECTED as error:
            if self._errors_end_it:
                raise
            await self._say(_error(inference, error).SerializeToString())
        if inference.reply is not None:
            self._open.discard(inference.reply)
        self._unanswered.remove(inference.size_bytes)
        self._call.release(inference.size_bytes + inference.ahead_bytes)

    async def _answer_well(self, inference: _StreamInference) -> None:
        """Raises what the request failed with."""
        if inference.error is not None:
            raise inference.error
        assert inference.served is not None
        assert inference.reply is not None
        if inference.served.signature.decoupled:
            await self._write_all(inference, inference.served, inference.reply)
        else:
            await self._write(inference, await inference.reply.one(), inference.served, final=True)

    async def _write_all(
        self, inference: _StreamInference, served: ServedVersion, reply: Reply
    ) -> None:
        """A decoupled model's responses; its end alone is written only where it was asked for."""
        ended = False
        async for response in reply:
            ended = response.last
            await self._write(inference, response, served, final=ended)
        if not ended and inference.empty_final:
            message = _empty_response(inference.id, served)
            message.infer_response.parameters[_FINAL].bool_param = True
            await self._say(message.SerializeToString())

    async def _write(
        self,
        inference: _StreamInference,
        response: InferResponse,
        served: ServedVersion,
        *,
        final: bool,
    ) -> None:
        if inference.trace is not None:
            inference.trace.answered(response)
            inference.trace.sending()
        name = id_text(inference.number, inference.part) if self._names_requests else ""
        await self._say(_answer(response, served, inference, final, name))
        if inference.trace is not None:
            inference.trace.sent()

    async def _say(self, message: bytes) -> None:
        async with self._writing:  # one at a time may wait for a client that reads slowly
            self._waits_for_client = True
            try:
                await self._call.write(message)
            finally:
                self._waits_for_client = False


def _answer(
    response: InferResponse,
    served: ServedVersion,
    inference: _StreamInference,
    final: bool,
    request_name: str,
) -> bytes:
    """The message on the wire; only this form of it waits for a client that reads slowly."""
    message = _empty_response(response.id, served)
    fill(message.infer_response, response, served.signature, inference.form)
    message.infer_response.parameters[_FINAL].bool_param = final
    if request_name:
        message.infer_response.parameters[REQUEST_ID].string_param = request_name
    if inference.target is not None:
        message.infer_response.parameters[HEADER_NAME].string_param = inference.target.label
        if inference.target.stamp:
            message.infer_response.parameters[STAMP_NAME].string_param = inference.target.stamp
    written: bytes = message.SerializeToString()
    return written


def _empty_response(request_id: str, served: ServedVersion) -> pb.ModelStreamInferResponse:
    message = pb.ModelStreamInferResponse()
    answer = message.infer_response
    answer.id = request_id
    answer.model_name = served.version.name
    answer.model_version = str(served.version.number)
    return message


def _error(inference: _StreamInference, error: Exception) -> pb.ModelStreamInferResponse:
    """Refused before scheduling: the id alone; failed later: who failed, and that it is over."""
    if inference.served is None:
        message = pb.ModelStreamInferResponse()
        message.infer_response.id = inference.id
    else:
        message = _empty_response(inference.id, inference.served)
        message.infer_response.parameters[_FINAL].bool_param = True
    message.error_message = str(error)
    return message

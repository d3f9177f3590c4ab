"""ModelStreamInfer: many requests in flight on one stream, answered in the order they came.

Opened by `server.grpc_door`. A reader decodes and submits; the writer carries answers back. A
request that fails is an `error_message` and the stream goes on, unless the client sent the
metadata `triton_grpc_error: true`: then the first error ends it with that error's status.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass

from tritonclient.grpc import service_pb2 as pb

from schedulers.reply import Reply
from schedulers.request import InferResponse
from server.codec_grpc import EMPTY_FINAL, decode, fill
from server.dataplane import DataPlane
from server.errors import NotReady
from server.grpc_calls import EXPECTED, Context, abort, parse
from server.served import Served

IN_FLIGHT = 256
"""Requests one stream may have unanswered; the next is not read from the wire before."""

_FINAL = "triton_final_response"


@dataclass(slots=True)
class _Asked:
    """One request of the stream: submitted (`served`, `reply`) or refused at once (`error`)."""

    id: str
    served: Served | None = None
    reply: Reply | None = None
    error: Exception | None = None
    empty_final: bool = False


class InferStream:
    """One open stream. It ends when the client has half-closed and every answer is written."""

    def __init__(
        self, dataplane: DataPlane, requests: AsyncIterator[bytes], context: Context
    ) -> None:
        self._dataplane = dataplane
        self._requests = requests
        self._context = context
        self._slots = asyncio.Semaphore(IN_FLIGHT)
        self._asked: asyncio.Queue[_Asked | None] = asyncio.Queue()
        self._open: set[Reply] = set()
        self._errors_end_it = ("triton_grpc_error", "true") in (context.invocation_metadata() or ())
        self._reader: asyncio.Task[None] | None = None
        self._stopping = False

    def stop(self) -> None:
        """Read no more; answer what was read, then end the stream with UNAVAILABLE."""
        self._stopping = True
        if self._reader is not None:
            self._reader.cancel()

    async def run(self) -> None:
        """Serve the stream to its end; when the client goes, its open requests are cancelled."""
        self._reader = asyncio.create_task(self._read())
        try:
            while (asked := await self._asked.get()) is not None:
                await self._answer(asked)
                self._slots.release()
        finally:
            self._reader.cancel()
            for reply in self._open:
                reply.cancel()
        await asyncio.wait((self._reader,))
        if self._stopping:
            raise NotReady("Server is stopping, it accepts no new inference requests")
        self._reader.result()

    async def _read(self) -> None:
        try:
            await self._slots.acquire()
            async for data in self._requests:
                self._asked.put_nowait(self._submit(data))
                await self._slots.acquire()
        finally:
            self._asked.put_nowait(None)

    def _submit(self, data: bytes) -> _Asked:
        asked = _Asked("")
        try:
            message = parse(pb.ModelInferRequest, data)
            asked.id = message.id
            served = self._dataplane.find(message.model_name, message.model_version)
            request = decode(message, served.signature, time.monotonic_ns())
            asked.empty_final = (
                EMPTY_FINAL in message.parameters and message.parameters[EMPTY_FINAL].bool_param
            )
            asked.reply = self._dataplane.submit(served, request)
            asked.served = served
            self._open.add(asked.reply)
        except EXPECTED as error:
            asked.error = error
        return asked

    async def _answer(self, asked: _Asked) -> None:
        try:
            if asked.error is not None:
                raise asked.error
            assert asked.served is not None
            assert asked.reply is not None
            if asked.served.signature.decoupled:
                await self._write_all(asked, asked.served, asked.reply)
            else:
                await self._write(await asked.reply.one(), asked.served, final=True)
        except EXPECTED as error:
            if self._errors_end_it:
                await abort(self._context, error)
            await self._context.write(_error(asked, error).SerializeToString())
        if asked.reply is not None:
            self._open.discard(asked.reply)

    async def _write_all(self, asked: _Asked, served: Served, reply: Reply) -> None:
        """A decoupled model's responses; its end alone is written only where it was asked for."""
        ended = False
        async for response in reply:
            ended = response.last
            await self._write(response, served, final=ended)
        if not ended and asked.empty_final:
            message = _named(asked.id, served)
            message.infer_response.parameters[_FINAL].bool_param = True
            await self._context.write(message.SerializeToString())

    async def _write(self, response: InferResponse, served: Served, *, final: bool) -> None:
        message = _named(response.id, served)
        fill(message.infer_response, response, served.signature)
        message.infer_response.parameters[_FINAL].bool_param = final
        await self._context.write(message.SerializeToString())


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

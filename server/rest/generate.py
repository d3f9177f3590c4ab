"""REST's generate verbs: one JSON answer, or server-sent events as the model makes them.

`server.rest.app` puts these paths into its table; `server.codec.json_generate` reads and writes the
bodies. A client that hangs up cancels its request. A client that reads slowly is waited for: what
it has not read stays in the model's Reply, whose length its scheduler bounds.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping
from collections.abc import Sequence as Rows
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from schedulers.errors import Cancelled
from schedulers.reply import Reply
from schedulers.request import NO_PARAMETERS, InferResponse, Sequence
from server.admit import sequence_in
from server.codec.forwarding import HeaderForwarding
from server.codec.json_generate import decode, encode, parameters_in, parse
from server.codec.json_text import Pairs
from server.codec.output_format import InferBody
from server.dataplane import DataPlane
from server.errors import InvalidRequest, ServingError
from server.rest.endpoint import BodyLimits, EndpointRow, model_of, read_body
from server.rest.envelope import read_envelope
from server.rest.errors import error_body, visible
from server.rest.http_inference import HttpInference, arm_headers
from server.rest.request_ids import number_of
from server.served_version import ServedVersion
from server.trace.record import Trace, following

_NOT_ONE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that "
    "generates various number of responses"
)


def generate_rows(
    dataplane: DataPlane, limits: BodyLimits, forwarding: HeaderForwarding | None = None
) -> Rows[EndpointRow]:
    """The paths of both verbs, with and without a version."""
    verbs = _GenerateEndpoints(dataplane, limits, forwarding)
    model = "/v2/models/{model}"
    return [
        EndpointRow(prefix + name, endpoint, "POST")
        for prefix in (model, model + "/versions/{version}")
        for name, endpoint in (
            ("/generate", verbs.generate),
            ("/generate_stream", verbs.generate_stream),
        )
    ]


class _GenerateInference(HttpInference):
    """A request to generate."""

    __slots__ = ("_body", "_depth", "_members")

    def __init__(
        self,
        request: Request,
        body: bytes,
        began_ns: int,
        depth: int,
        forwarding: HeaderForwarding | None,
    ) -> None:
        scope = request.scope
        super().__init__(*model_of(request), forwarding)
        self.headers = scope["headers"]
        self.began_ns = began_ns
        self.number = number_of(scope)
        self.principal = scope.get("principal")
        self._body = body
        self._depth = depth
        self._members: Pairs | None = None

    def decode(self, served: ServedVersion) -> InferBody:
        return decode(self._body, served.signature, self._depth, self._members)

    def parameter(self, name: str) -> object:
        return self._parameters().get(name)

    def sequence(self) -> Sequence | None:
        return sequence_in(self._parameters())

    def _parameters(self) -> Mapping[str, Any]:
        try:
            if self._members is None:
                self._members = parse(self._body, self._depth)
            return parameters_in(self._members)
        except ServingError:  # `decode` will say it
            return NO_PARAMETERS


class _GenerateEndpoints:
    def __init__(
        self, dataplane: DataPlane, limits: BodyLimits, forwarding: HeaderForwarding | None
    ) -> None:
        self._dataplane = dataplane
        self._limits = limits
        self._forwarding = forwarding

    async def generate(self, request: Request) -> Response:
        reply, trace, headers = await self._submitted(request)
        async with cancelled_on_hang_up(request.receive, reply):
            with following(trace):
                response = await _only(reply)
                if trace is not None:
                    trace.answered(response)
        return Response(encode(response), headers=headers, media_type="application/json")

    async def generate_stream(self, request: Request) -> Response:
        return GenerateEventStream(*await self._submitted(request))

    async def _submitted(self, request: Request) -> tuple[Reply, Trace | None, Mapping[str, str]]:
        """The reply to come, its trace if there is one, and what the head says of a route."""
        began_ns = time.monotonic_ns()
        body = await read_body(
            request, self._limits.body_bytes, "; use --http-max-input-size to raise it"
        )
        inference = _GenerateInference(
            request, body, began_ns, self._limits.json_depth, self._forwarding
        )
        inference.arrived(time.monotonic_ns(), read_envelope(inference.headers))
        reply = self._dataplane.infer(inference)
        request.scope["target"] = inference.arm
        return reply, inference.trace, arm_headers(inference.target)


async def _only(reply: Reply) -> InferResponse:
    """The only response. Raises InvalidRequest when there is none, or a second."""
    found: InferResponse | None = None
    async for response in reply:
        if found is not None:
            raise InvalidRequest(_NOT_ONE)
        found = response
    if found is None:
        raise InvalidRequest(_NOT_ONE)
    return found


EVENT_HEADERS = ((b"cache-control", b"no-cache"), (b"x-accel-buffering", b"no"))
"""Of every stream of events; the second keeps nginx from collecting them."""


class GenerateEventStream(Response):
    """The responses of a reply as events `data: {…}`. The first one decides the status: 200, or
    that of the error it is; errors after it are events like any other."""

    media_type = "text/event-stream; charset=utf-8"

    def __init__(
        self,
        reply: Reply,
        trace: Trace | None = None,
        headers: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._reply = reply
        self._trace = trace
        self._fixed_headers = [(name.encode(), value.encode()) for name, value in headers.items()]

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with cancelled_on_hang_up(receive, self._reply):
            with following(self._trace):
                await self._send_events(send)

    async def _send_events(self, send: Send) -> None:
        started = False
        async for status, event in _events(self._reply, self._trace):
            if not started:
                await send(self._start(status))
                started = True
            await send({"type": "http.response.body", "body": event, "more_body": True})
            if self._trace is not None:
                self._trace.sent()
        if not started:
            await send(self._start(200))
        await send({"type": "http.response.body", "body": b""})

    def _start(self, status: int) -> dict[str, object]:
        headers = [
            (b"content-type", self.media_type.encode()),
            *EVENT_HEADERS,
            *self._fixed_headers,
        ]
        return {"type": "http.response.start", "status": status, "headers": headers}


async def _events(reply: Reply, trace: Trace | None) -> AsyncIterator[tuple[int, bytes]]:
    try:
        async for response in reply:
            if trace is not None:
                trace.answered(response)
                trace.sending()
            yield 200, b"data: %b\n\n" % encode(response)
    except Cancelled as error:  # the client has disconnected: nobody reads on
        if trace is not None:
            trace.failed(error)
    except Exception as error:  # noqa: BLE001 - the boundary: visible() logs what is our fault
        if trace is not None:
            trace.failed(error)
            trace.sending()
        status, text = visible(error)
        yield status, b"data: %b\n\n" % error_body(text)


@asynccontextmanager
async def cancelled_on_hang_up(receive: Receive, reply: Reply) -> AsyncIterator[None]:
    """Inside, `reply` is cancelled as soon as the client hangs up; afterwards it is cancelled
    if it has not ended. The request's body must have been received."""
    watch = asyncio.create_task(_cancel_on_hang_up(receive, reply))
    try:
        yield
    finally:
        watch.cancel()
        reply.cancel()


async def _cancel_on_hang_up(receive: Receive, reply: Reply) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
    reply.cancel()

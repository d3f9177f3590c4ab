"""REST's generate verbs: one JSON answer, or server-sent events as the model makes them.

`server.rest.app` puts these paths into its table; `server.codec.json_generate` reads and writes the
bodies. A client that hangs up cancels its request. A client that reads slowly is waited for: what
it has not read stays in the model's Reply, whose length its scheduler bounds.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import partial
from types import MappingProxyType
from typing import NamedTuple

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from schedulers.errors import Cancelled
from schedulers.reply import Reply
from schedulers.request import InferRequest, InferResponse
from server.codec.forwarding import Forwarding
from server.codec.json_generate import decode, encode
from server.codec.json_peek import parameter_among
from server.dataplane import DataPlane
from server.errors import InvalidRequest
from server.rest.endpoint import Row, model_of, read_body
from server.rest.envelope import complete, read_envelope
from server.rest.errors import error_body, visible
from server.rest.infer import Limits
from server.rest.routed import arm_headers, picked
from server.routing.table import Target
from server.served import Served
from server.trace.record import HTTP, Received, Trace, following

_NOT_ONE = (
    "generate expects model to produce exactly 1 response, use generate stream for model that "
    "generates various number of responses"
)


def generate_rows(
    dataplane: DataPlane, limits: Limits, forwarding: Forwarding | None = None
) -> Sequence[Row]:
    """The paths of both verbs, with and without a version."""
    verbs = _Generate(dataplane, limits, forwarding)
    model = "/v2/models/{model}"
    return [
        Row(prefix + name, endpoint, "POST")
        for prefix in (model, model + "/versions/{version}")
        for name, endpoint in (
            ("/generate", verbs.generate),
            ("/generate_stream", verbs.generate_stream),
        )
    ]


class _Submitted(NamedTuple):
    """A reply to come, its trace if there is one, and what the response's head says of a route."""

    reply: Reply
    trace: Trace | None
    headers: Mapping[str, str]


class _Generate:
    def __init__(self, dataplane: DataPlane, limits: Limits, forwarding: Forwarding | None) -> None:
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
        return EventStream(*await self._submitted(request))

    async def _submitted(self, request: Request) -> _Submitted:
        began_ns = time.monotonic_ns()
        body = await read_body(
            request, self._limits.body_bytes, "; use --http-max-input-size to raise it"
        )
        arrived_ns = time.monotonic_ns()
        served, asked, target = self._admitted(request, body, arrived_ns)
        named = {} if target is None else arm_headers(target)
        headers = request.scope["headers"]
        complete(asked, read_envelope(headers), self._forwarding, headers)
        asked.principal = request.scope.get("principal")
        if not self._dataplane.tracing.on:
            return _Submitted(self._dataplane.submit(served, asked, target), None, named)
        received = Received(HTTP, began_ns, arrived_ns, request.headers.raw)
        reply, trace = self._dataplane.submit_followed(served, asked, received, target)
        return _Submitted(reply, trace, named)

    def _admitted(
        self, request: Request, body: bytes, arrived_ns: int
    ) -> tuple[Served, InferRequest, Target | None]:
        depth = self._limits.json_depth
        target = self._picked(request, body)
        served = (
            self._dataplane.find(*model_of(request))
            if target is None
            else self._dataplane.find_target(target)
        )
        asked = decode(body, served.signature, arrived_ns, depth)
        if target is not None and asked.sequence is not None:
            meant, target = target, self._dataplane.routing.stay(target, asked.sequence)
            if target.key != meant.key:
                served = self._dataplane.find_target(target)
                asked = decode(body, served.signature, arrived_ns, depth)
        if target is not None:
            request.scope["target"] = target.label
        return served, asked, target

    def _picked(self, request: Request, body: bytes) -> Target | None:
        """What the route says, if the name is a route's."""
        route = self._dataplane.route_of(*model_of(request))
        if route is None:
            return None
        scope, read = request.scope, partial(parameter_among, body, self._limits.json_depth)
        return picked(self._dataplane, route, scope["headers"], scope.get("principal"), read)


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


class EventStream(Response):
    """The responses of a reply as events `data: {…}`. The first one decides the status: 200, or
    that of the error it is; errors after it are events like any other."""

    media_type = "text/event-stream; charset=utf-8"

    def __init__(
        self,
        reply: Reply,
        trace: Trace | None = None,
        named: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self._reply = reply
        self._trace = trace
        self._named = [(name.encode(), value.encode()) for name, value in named.items()]

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
            (b"cache-control", b"no-cache"),
            *self._named,
        ]
        return {"type": "http.response.start", "status": status, "headers": headers}


async def _events(reply: Reply, trace: Trace | None) -> AsyncIterator[tuple[int, bytes]]:
    try:
        async for response in reply:
            if trace is not None:
                trace.answered(response)
                trace.sending()
            yield 200, b"data: %b\n\n" % encode(response)
    except Cancelled:
        return  # the client has gone: nobody reads on
    except Exception as error:  # noqa: BLE001 - the porch: visible() logs what is our fault
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

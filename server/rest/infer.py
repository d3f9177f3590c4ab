"""One REST infer request: no task, no ASGI message, no middleware.

`server.rest.protocol` calls in with the parsed request; an Exchange finds the model
(`server.dataplane`), decodes (`server.rest.body`), submits, and is
called back by the Reply to write the answer. A client that hangs up cancels its request.
"""

import re
import time
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import unquote

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from schedulers.errors import Cancelled
from schedulers.reply import Reply
from server.codec.form import PLAIN, Asked
from server.codec.forwarding import Forwarding
from server.codec.json_infer import Encoded, encode
from server.codec.json_peek import parameter_in
from server.dataplane import DataPlane
from server.errors import InvalidRequest, TooLarge, Unsupported
from server.logs.access import AccessLog
from server.rest.body import decode_body
from server.rest.compression import (
    BRIEF_BYTES,
    CODINGS,
    LEAST_BYTES,
    UnsupportedCoding,
    deflate,
    elsewhere,
    inflate,
    inflate_brief,
)
from server.rest.connection import Connection
from server.rest.envelope import (
    PLAIN_ENVELOPE,
    body_bytes,
    complete,
    read_envelope,
)
from server.rest.errors import error_body, headers_of, visible
from server.rest.routed import picked
from server.routing.table import Target
from server.served import Served
from server.settings.restricted import Lock
from server.trace.record import HTTP, Received, Trace

_ACCEPTED = b"Accept-Encoding: %s\r\n" % CODINGS.encode()
_GIVE_UP_FACTOR = 16
"""A body this many times over the limit is no longer read to its end: the connection closes."""

READ_ON_BYTES = 2**20
"""A refused request with a body up to this long is read to its end, and the connection stays; of a
longer one nothing is read, and the connection closes."""

_ONE_RESPONSE_ONLY = "HTTP end point doesn't support models with decoupled transaction policy"


class Limits(NamedTuple):
    """What one request may bring: bytes of body, levels of JSON nesting."""

    body_bytes: int
    json_depth: int


class RestConnection(Connection):
    """What an Exchange knows of its connection. `server.rest.protocol` makes the exchanges."""

    dataplane: DataPlane
    limits: Limits
    lock: Lock | None = None
    forwarding: Forwarding | None = None
    log: AccessLog | None = None


class _NoEvent:
    """Stands where uvicorn's cycles have an asyncio.Event; nobody waits on an Exchange."""

    def set(self) -> None: ...


class Exchange:
    """One infer request and its response on one connection."""

    __slots__ = (
        "_admitted",
        "_asked",
        "_chunks",
        "_envelope",
        "_form",
        "_headers",
        "_protocol",
        "_reply",
        "_target",
        "_trace",
        "began_ns",
        "disconnected",
        "keep_alive",
        "more_body",
        "principal",
        "refusal",
        "request_id",
        "response_complete",
        "size",
        "version",
    )
    message_event = _NoEvent()

    def __init__(self, protocol: RestConnection, asked: re.Match[bytes]) -> None:
        self._protocol = protocol
        self._asked = asked
        self._headers = protocol.headers
        self._chunks: list[bytes] = []
        self.size = 0
        self._admitted = False
        self._reply: Reply | None = None
        self._envelope = PLAIN_ENVELOPE
        self._form = PLAIN
        self._trace: Trace | None = None
        self._target: Target | None = None
        self.principal: str | None = None
        """Who asks, if that is known."""
        self.refusal: Exception | None = None
        """Why a request that is turned away is."""
        self.request_id = ""
        self.version = 0
        self.began_ns = time.monotonic_ns() if protocol.dataplane.tracing.on else 0
        self.keep_alive = protocol.parser.should_keep_alive()
        self.more_body = True
        self.response_complete = False
        self.disconnected = False

    @property
    def route(self) -> str:
        """Which arm answers, as the response says it; "" without a route."""
        return self._target.label if self._target is not None else ""

    # the request comes in

    def admitted(self) -> None:
        """Earlier requests of the connection are answered; it is this one's turn."""
        self._admitted = True
        if not self.more_body:
            self._start()
        elif self._protocol.expect_100_continue:
            self._protocol.transport.write(b"HTTP/1.1 100 Continue\r\n\r\n")

    def receive(self, chunk: bytes) -> None:
        self.size += len(chunk)
        limit = self._protocol.limits.body_bytes
        if self.size <= limit:
            self._chunks.append(chunk)
        elif self.size > limit * _GIVE_UP_FACTOR:
            self.keep_alive = False
            self.received()
        else:
            self._chunks.clear()  # read on, so that the client gets to read why

    def received(self) -> None:
        if self.more_body:
            self.more_body = False
            if self._admitted:
                self._start()

    def abandon(self) -> None:
        """The client has gone."""
        self.disconnected = True
        self.response_complete = True
        self._form = PLAIN
        if self._reply is not None:
            self._reply.cancel()
        if self._trace is not None:
            self._trace.failed(Cancelled("the client has gone"))
            self._trace.end()

    def _start(self) -> None:
        arrived_ns = time.monotonic_ns()
        limit = self._protocol.limits.body_bytes
        try:
            if not 0 < self.size <= limit:
                self._check_size(limit)
            envelope = self._envelope = read_envelope(self._headers)
        except Exception as error:  # noqa: BLE001 - the porch: visible() logs what is our fault
            self._refuse(error)
            return
        body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
        self._chunks.clear()
        if envelope.coding:
            self._inflate(body, arrived_ns)
        else:
            self._submit(body, arrived_ns)

    def _check_size(self, limit: int) -> None:
        if self.size > limit:
            raise _too_large(self.size, limit)
        if self._protocol.parser.should_upgrade():  # httptools stops at the head of such a request
            raise InvalidRequest(
                "this server does not upgrade connections; send the request without an Upgrade "
                "header"
            )

    def _inflate(self, body: bytes, arrived_ns: int) -> None:
        coding, limit = self._envelope.coding, self._protocol.limits.body_bytes
        try:
            brief = inflate_brief(body, coding, limit)
        except Exception as error:  # noqa: BLE001 - the porch: visible() logs what is our fault
            self._refuse(error)
            return
        if brief is not None:
            self._submit(brief, arrived_ns)
            return
        self._then(
            lambda: inflate(body, coding, limit), lambda whole: self._submit(whole, arrived_ns)
        )

    def _then(self, work: Callable[[], bytes], go_on: Callable[[bytes], None]) -> None:
        """`go_on(work())`, the work on a thread; nothing when the client has gone meanwhile."""
        done = elsewhere(work)

        def back(done: Any) -> None:
            if self.disconnected or done.cancelled():
                return
            error = done.exception()
            if error is None:
                go_on(done.result())
            else:
                self._refuse(error)

        done.add_done_callback(back)

    def _submit(self, body: bytes, arrived_ns: int) -> None:
        protocol, envelope = self._protocol, self._envelope
        dataplane = protocol.dataplane
        try:
            served, asked = self._admit(body, arrived_ns)
            self._form = asked.form
            self.request_id, self.version = asked.request.id, asked.request.version
            asked.request.principal = self.principal
            if envelope.timeout_ns or protocol.forwarding is not None:
                complete(asked.request, envelope, protocol.forwarding, self._headers)
            if self._trace is not None:
                self._trace.arm = self.route
                self._trace.admitted(asked.request)
            self._reply = dataplane.submit(served, asked.request, self._target)
        except Exception as error:  # noqa: BLE001 - the porch: visible() logs what is our fault
            self._refuse(error)
        else:
            self._reply.then(self._finish)

    def _admit(self, body: bytes, arrived_ns: int) -> tuple[Served, Asked]:
        """Who answers, and the request as that version takes it."""
        dataplane = self._protocol.dataplane
        served = self._find(body)
        if served.signature.decoupled:
            raise Unsupported(_ONE_RESPONSE_ONLY)
        if dataplane.tracing.on:
            self._trace = self._begin_trace(served, arrived_ns)
        asked = self._decode(served, body, arrived_ns)
        target, sequence = self._target, asked.request.sequence
        if target is None or sequence is None:
            return served, asked
        self._target = dataplane.routing.stay(target, sequence)
        if self._target.key == target.key:
            return served, asked
        served = dataplane.find_target(self._target)
        return served, self._decode(served, body, arrived_ns)

    def _find(self, body: bytes) -> Served:
        dataplane = self._protocol.dataplane
        name, version = model_and_version(self._asked)
        route = dataplane.route_of(name, version)
        if route is None:
            return dataplane.find(name, version)
        if route.unit_header:  # as in `picked`, without the call
            target = dataplane.routing.by_header(route, self._headers)
        elif not route.asks:
            target = dataplane.routing.draw(route)
        else:
            read = self._parameters_in(body) if route.parameter else None
            target = picked(dataplane, route, self._headers, self.principal, read)
        self._target = target
        return dataplane.find_target(target)

    def _parameters_in(self, body: bytes) -> Callable[[str], object]:
        length, depth = self._envelope.json_length, self._protocol.limits.json_depth
        return partial(parameter_in, body, length, depth)

    def _decode(self, served: Served, body: bytes, arrived_ns: int) -> Asked:
        depth, shared = self._protocol.limits.json_depth, self._protocol.dataplane.shared_memory
        return decode_body(body, self._envelope, served.signature, arrived_ns, depth, shared)

    def _begin_trace(self, served: Served, arrived_ns: int) -> Trace | None:
        received = Received(HTTP, self.began_ns or arrived_ns, arrived_ns, self._headers)
        version = served.version
        return self._protocol.dataplane.tracing.begin(version.name, version.number, received)

    # the answer goes out

    def _finish(self, reply: Reply) -> None:
        if self.disconnected:
            return
        try:
            response = reply.result()
            if self._trace is not None:
                self._trace.answered(response)
            encoded = encode(response, self._form)
        except Exception as error:  # noqa: BLE001 - the porch: visible() logs what is our fault
            self._refuse(error)
        else:
            coding = self._envelope.answer_coding
            if coding and sum(map(len, encoded.parts)) >= LEAST_BYTES:
                self._deflate(encoded)
            else:
                self._write(200, encoded)

    def _deflate(self, encoded: Encoded) -> None:
        coding = self._envelope.answer_coding
        whole = b"".join(encoded.parts)
        more = b"Content-Encoding: %s\r\nVary: Accept-Encoding\r\n" % coding.encode()

        def write(body: bytes) -> None:
            self._write(200, Encoded((body,), encoded.header_length), more)

        if len(whole) <= BRIEF_BYTES:
            write(deflate(whole, coding))
        else:
            self._then(lambda: deflate(whole, coding), write)

    def _refuse(self, error: Exception) -> None:
        if self._trace is not None:
            self._trace.failed(error)
        model, _ = model_and_version(self._asked)
        status, text = visible(error, f"request '{self.request_id}' to model '{model}'")
        more = _ACCEPTED if isinstance(error, UnsupportedCoding) else b""
        more += b"".join(b"%s: %s\r\n" % header for header in headers_of(error))
        self._write(status, Encoded((error_body(text),), 0), more)

    def _write(self, status: int, encoded: Encoded, more: bytes = b"") -> None:
        """Write the answer; `more` are further lines of its head."""
        parts = encoded.parts
        length = sum(map(len, parts))
        if encoded.header_length:
            head = (
                b"Content-Type: application/octet-stream\r\n"
                b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n"
                % (encoded.header_length, length)
            )
        else:
            head = b"Content-Type: application/json\r\nContent-Length: %d\r\n" % length
        if self._target is not None:
            more += self._target.line
        if not self.keep_alive:
            more += b"Connection: close\r\n"
        if self._trace is not None:
            self._trace.sending()
        transport = self._protocol.transport
        transport.write(b"".join((STATUS_LINE[status], head, more, b"\r\n", *parts)))
        if self._trace is not None:
            self._trace.sent()
            self._trace.end()
            self._trace = None
        self.response_complete = True
        self._reply = None
        self._form = PLAIN  # lets go of shared memory
        if not self.keep_alive:
            transport.close()
        self._protocol.on_response_complete()


class TurnedAway(Exchange):
    """A request that may not be made: nothing of its body is kept, and little is read."""

    __slots__ = ()

    def admitted(self) -> None:
        if self.more_body and self._is_not_worth_reading():
            self.keep_alive = False
            self.more_body = False
        super().admitted()

    def receive(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self.size > READ_ON_BYTES:
            self.keep_alive = False
            self.received()

    def _is_not_worth_reading(self) -> bool:
        return self._protocol.expect_100_continue or body_bytes(self._headers) > READ_ON_BYTES

    def _start(self) -> None:
        assert self.refusal is not None
        self._refuse(self.refusal)


def model_and_version(asked: re.Match[bytes]) -> tuple[str, str]:
    name, version = asked.groups(b"")
    text = name.decode("latin-1")
    return (unquote(text) if "%" in text else text), version.decode()


def _too_large(size: int, limit: int) -> TooLarge:
    return TooLarge(
        f"Request body size of {size} bytes exceeds the maximum allowed value of {limit} bytes. "
        "Use --http-max-input-size to increase the limit."
    )

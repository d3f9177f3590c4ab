"""One REST infer request: no task, no ASGI message, no middleware.

`server.infer_protocol` calls in with the parsed request; an Exchange finds the model
(`server.dataplane`), decodes (`server.codec_json`, `server.raw_body`), submits, and is called back
by the Reply to write the answer. A client that hangs up cancels its request.
"""

import re
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import unquote

from uvicorn.protocols.http.httptools_impl import STATUS_LINE

from schedulers.errors import Cancelled
from schedulers.reply import Reply
from server.access_log import AccessLog
from server.codec_json import Encoded, decode, encode
from server.compression import (
    BRIEF_BYTES,
    CODINGS,
    LEAST_BYTES,
    UnsupportedCoding,
    deflate,
    elsewhere,
    inflate,
    inflate_brief,
)
from server.connection import Connection
from server.dataplane import DataPlane
from server.envelope import PLAIN_ENVELOPE, check_json_length, complete, read_envelope
from server.errors import InvalidRequest, Restricted, TooLarge, Unsupported
from server.form import PLAIN
from server.forwarding import Forwarding
from server.raw_body import decode_raw
from server.rest_errors import error_body, visible
from server.restricted import Lock, http_text
from server.served import Served
from server.trace_record import HTTP, Received, Trace

_ACCEPTED = b"Accept-Encoding: %s\r\n" % CODINGS.encode()
_GIVE_UP_FACTOR = 16
"""A body this many times over the limit is no longer read to its end: the connection closes."""

_ONE_RESPONSE_ONLY = "HTTP end point doesn't support models with decoupled transaction policy"


class Limits(NamedTuple):
    """What one request may bring: bytes of body, levels of JSON nesting."""

    body_bytes: int
    json_depth: int


class RestConnection(Connection):
    """What an Exchange knows of its connection. `server.infer_protocol` makes the exchanges."""

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
        "_trace",
        "began_ns",
        "disconnected",
        "keep_alive",
        "more_body",
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
        self.request_id = ""
        self.version = 0
        self.began_ns = time.monotonic_ns() if protocol.dataplane.tracing.on else 0
        self.keep_alive = protocol.parser.should_keep_alive()
        self.more_body = True
        self.response_complete = False
        self.disconnected = False

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
            served = dataplane.find(*_model_and_version(self._asked))
            if served.signature.decoupled:
                raise Unsupported(_ONE_RESPONSE_ONLY)
            if dataplane.tracing.on:
                self._trace = self._begin_trace(served, arrived_ns)
            length = envelope.json_length
            if length == 0:
                asked = decode_raw(body, served.signature, arrived_ns)
            else:
                if length is not None:
                    check_json_length(length, len(body))
                depth, shared = protocol.limits.json_depth, dataplane.shared_memory
                asked = decode(body, length, served.signature, arrived_ns, depth, shared)
            self._form = asked.form
            self.request_id, self.version = asked.request.id, asked.request.version
            if envelope.timeout_ns or protocol.forwarding is not None:
                complete(asked.request, envelope, protocol.forwarding, self._headers)
            if self._trace is not None:
                self._trace.admitted(asked.request)
            self._reply = dataplane.submit(served, asked.request)
        except Exception as error:  # noqa: BLE001 - the porch: visible() logs what is our fault
            self._refuse(error)
        else:
            self._reply.then(self._finish)

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
        model, _ = _model_and_version(self._asked)
        status, text = visible(error, f"request '{self.request_id}' to model '{model}'")
        more = _ACCEPTED if isinstance(error, UnsupportedCoding) else b""
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
    """A request that lacks the header its API asks for: nothing of its body is kept."""

    __slots__ = ()

    def receive(self, chunk: bytes) -> None:
        self.size += len(chunk)
        if self.size > self._protocol.limits.body_bytes:
            self.keep_alive = False
            self.received()

    def _start(self) -> None:
        lock = self._protocol.lock
        assert lock is not None
        self._refuse(Restricted(http_text(lock)))


def _model_and_version(asked: re.Match[bytes]) -> tuple[str, str]:
    name, version = asked.groups(b"")
    text = name.decode("latin-1")
    return (unquote(text) if "%" in text else text), version.decode()


def _too_large(size: int, limit: int) -> TooLarge:
    return TooLarge(
        f"Request body size of {size} bytes exceeds the maximum allowed value of {limit} bytes. "
        "Use --http-max-input-size to increase the limit."
    )

"""The REST infer verb, answered inside the HTTP protocol: no task, no ASGI message, no middleware.

httptools calls in with the parsed request; an Exchange finds the model (`server.dataplane`),
decodes (`server.codec_json`), submits, and is called back by the Reply to write the answer. Every
other path goes on to the ASGI application. A client that hangs up cancels its request.
"""

import re
import time
from typing import Any, NamedTuple
from urllib.parse import unquote

from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from schedulers.reply import Reply
from server.codec_json import Encoded, decode, encode
from server.dataplane import DataPlane
from server.errors import InvalidRequest, TooLarge, Unsupported
from server.rest_errors import error_body, visible

_INFER = re.compile(rb"/v2/models/([^/?]+)(?:/versions/([0-9]+))?/infer(?:\?.*)?\Z")
_GIVE_UP_FACTOR = 16
"""A body this many times over the limit is no longer read to its end: the connection closes."""


class Limits(NamedTuple):
    """What one request may bring: bytes of body, levels of JSON nesting."""

    body_bytes: int
    json_depth: int


class _NoEvent:
    """Stands where uvicorn's cycles have an asyncio.Event; nobody waits on an Exchange."""

    def set(self) -> None: ...


class InferProtocol(HttpToolsProtocol):
    """uvicorn's HTTP/1.1 protocol with the infer verb answered on the spot.

    What it relies on of uvicorn's class: the parser callbacks, `cycle` (an Exchange stands in for
    a RequestResponseCycle), `pipeline`, `flow` and `_start_asgi_task`.
    """

    dataplane: DataPlane
    limits: Limits

    def on_message_begin(self) -> None:
        self.url = b""
        self.expect_100_continue = False
        self.headers = []

    def on_headers_complete(self) -> None:
        asked = _INFER.match(self.url)
        if asked and self.parser.get_method() == b"POST":
            self._begin_exchange(asked)
            return
        url, headers, expects = self.url, self.headers, self.expect_100_continue
        super().on_message_begin()
        self.url, self.expect_100_continue = url, expects
        self.headers += headers
        super().on_headers_complete()

    def _begin_exchange(self, asked: re.Match[bytes]) -> None:
        before: Any = self.cycle
        exchange = Exchange(self, asked)
        self.cycle = exchange  # type: ignore[assignment]
        if before is None or before.response_complete:
            exchange.admitted()
        else:
            self.flow.pause_reading()
            self.pipeline.appendleft((exchange, self.app))  # type: ignore[arg-type]

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        if isinstance(cycle, Exchange):
            cycle.admitted()
        else:
            super()._start_asgi_task(cycle, app)

    def on_body(self, body: bytes) -> None:
        cycle: Any = self.cycle
        if isinstance(cycle, Exchange):
            cycle.receive(body)
        else:
            super().on_body(body)

    def on_message_complete(self) -> None:
        cycle: Any = self.cycle
        if isinstance(cycle, Exchange):
            cycle.received()
        else:
            super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        cycles: list[Any] = [self.cycle, *(cycle for cycle, _ in self.pipeline)]
        for cycle in cycles:
            if isinstance(cycle, Exchange):
                cycle.abandon()
        self.pipeline.clear()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        super().pause_writing()
        self.flow.pause_reading()  # a client that does not read its answers sends no more requests

    def resume_writing(self) -> None:
        super().resume_writing()
        self.flow.resume_reading()

    # Keep-alive: one timer per connection that looks at the clock, instead of one per request.

    def _unset_keepalive_if_required(self) -> None:
        self.idle_since = 0.0

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        if not self.flow.write_paused:
            self.flow.resume_reading()
        if self.pipeline:
            cycle, app = self.pipeline.pop()
            self._start_asgi_task(cycle, app)
            return
        self.idle_since = self.loop.time()
        if self.timeout_keep_alive_task is None:
            self._watch_idle(self.timeout_keep_alive)

    def _watch_idle(self, delay: float) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(delay, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        self.timeout_keep_alive_task = None
        if self.transport.is_closing():
            return
        if not self.idle_since:
            self._watch_idle(self.timeout_keep_alive)
            return
        left = self.idle_since + self.timeout_keep_alive - self.loop.time()
        if left <= 0:
            self.transport.close()
        else:
            self._watch_idle(left)

    idle_since = 0.0


class Exchange:
    """One infer request and its response on one connection."""

    __slots__ = (
        "_admitted",
        "_asked",
        "_asked_binary",
        "_body",
        "_chunks",
        "_headers",
        "_protocol",
        "_reply",
        "_size",
        "disconnected",
        "keep_alive",
        "more_body",
        "response_complete",
    )
    message_event = _NoEvent()

    def __init__(self, protocol: InferProtocol, asked: re.Match[bytes]) -> None:
        self._protocol = protocol
        self._asked = asked
        self._headers = protocol.headers
        self._chunks: list[bytes] = []
        self._size = 0
        self._admitted = False
        self._reply: Reply | None = None
        self._asked_binary: frozenset[str] | bool = False
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
        self._size += len(chunk)
        limit = self._protocol.limits.body_bytes
        if self._size <= limit:
            self._chunks.append(chunk)
        elif self._size > limit * _GIVE_UP_FACTOR:
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
        if self._reply is not None:
            self._reply.cancel()

    def _start(self) -> None:
        arrived_ns = time.monotonic_ns()
        dataplane, limits = self._protocol.dataplane, self._protocol.limits
        try:
            if self._size > limits.body_bytes:
                raise _too_large(self._size, limits.body_bytes)
            header_length = self._read_headers()
            body = self._chunks[0] if len(self._chunks) == 1 else b"".join(self._chunks)
            self._chunks.clear()
            served = dataplane.find(*_model_and_version(self._asked))
            asked = decode(body, header_length, served.signature, arrived_ns, limits.json_depth)
            self._asked_binary = asked.binary
            self._reply = dataplane.submit(served, asked.request)
        except Exception as error:  # noqa: BLE001 - the porch: visible() logs what is our fault
            self._refuse(error)
        else:
            self._reply.then(self._finish)

    def _read_headers(self) -> int | None:
        """The length of the JSON part, if the client states one."""
        length: int | None = None
        for name, value in self._headers:
            if name == b"inference-header-content-length":
                length = _header_length(value, self._size)
            elif name == b"content-encoding" and value.lower() != b"identity":
                raise Unsupported("Unsupported compression type")
        return length

    # the answer goes out

    def _finish(self, reply: Reply) -> None:
        if self.disconnected:
            return
        try:
            encoded = encode(reply.result(), self._asked_binary)
        except Exception as error:  # noqa: BLE001 - the porch: visible() logs what is our fault
            self._refuse(error)
        else:
            self._write(200, encoded)

    def _refuse(self, error: Exception) -> None:
        status, text = visible(error)
        self._write(status, Encoded((error_body(text),), 0))

    def _write(self, status: int, encoded: Encoded) -> None:
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
            head += b"Connection: close\r\n"
        transport = self._protocol.transport
        transport.write(b"".join((STATUS_LINE[status], head, b"\r\n", *parts)))
        self.response_complete = True
        self._reply = None
        if not self.keep_alive:
            transport.close()
        self._protocol.on_response_complete()


def _model_and_version(asked: re.Match[bytes]) -> tuple[str, str]:
    name, version = asked.groups(b"")
    text = name.decode("latin-1")
    return (unquote(text) if "%" in text else text), version.decode()


def _header_length(value: bytes, size: int) -> int:
    if not value.isdigit():
        text = value.decode("latin-1")
        raise InvalidRequest(f"Unable to parse Inference-Header-Content-Length, got: {text}")
    length = int(value)
    if length > size:
        raise InvalidRequest(f"inference header size should be in range (0, {size}), got: {length}")
    if length == 0:
        raise Unsupported("raw-body requests are not offered yet: send a JSON header")
    return length


def _too_large(size: int, limit: int) -> TooLarge:
    return TooLarge(
        f"Request body size of {size} bytes exceeds the maximum allowed value of {limit} bytes. "
        "Use --http-max-input-size to increase the limit."
    )

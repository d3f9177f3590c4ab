"""One HTTP connection: limits on what a client may send, and on how long it may take over it.

uvicorn's protocol (httptools) with the holes closed: a head is bounded, chunks are counted, nobody
may dawdle, and pipelined requests hold bounded memory. `server.rest.infer` adds the infer verb.
What it relies on of uvicorn's class: the parser callbacks, `cycle`, `pipeline`, `flow`,
`_start_asgi_task`.
"""

import asyncio
import logging
from typing import Any, NamedTuple

import httptools
import orjson
from uvicorn.protocols.http.httptools_impl import STATUS_LINE, HttpToolsProtocol

from server.buffers import UNBOUNDED, BufferAccount, BufferBudget
from server.process.loop_lag import LoopActivity

SLOWEST_BYTES_PER_S = 1024
"""A body that comes slower than this, after a first grace, ends its connection."""

_BESIDE_CHUNKS_BYTES, _BESIDE_CHUNK_BYTES = 512 * 1024, 32
"""Bytes beside the data a chunked body may have: its head and trailers; and with every chunk."""

_BETWEEN, _HEAD, _BODY = 0, 1, 2

_log = logging.getLogger(__name__)


class ConnectionLimits(NamedTuple):
    """What a client may do to a connection. Sizes are bytes, times seconds.

    `stall_s`: for the head of a request, for a body too slow, for reading too little of an answer.
    `body_bytes`: of one body that are kept; `budget`: of all bodies that are not answered yet and
    of the answers that wait. `activity` is told of bytes that arrive.
    """

    head_bytes: int = 64 * 1024
    chunks: int = 65_536
    keep_alive_s: float = 75.0
    stall_s: float = 60.0
    body_bytes: int = 64 * 2**20
    budget: BufferBudget = BufferBudget(UNBOUNDED)
    activity: LoopActivity = LoopActivity()

    @property
    def look_s(self) -> float:
        """How often a connection is looked at."""
        return min(max(min(self.keep_alive_s, self.stall_s) / 4, 0.02), 15.0)


class ConnectionProbe(NamedTuple):
    """What one look at a connection saw.

    `message`: stands for the message being received, None for none; `received`: bytes of its
    body; `unsent`: bytes its client has not taken yet; `writing`: whether more are being added.
    """

    at_s: float
    message: object
    received: int
    unsent: int
    writing: bool = False


class _ParserStopped(Exception):
    """Leaves the parser; the status and the text are on the connection."""


class Http1Connection(HttpToolsProtocol):
    """A connection of a listener; `wire` is set on a class made per listener.

    One timer per connection looks at it now and then, instead of one or two per request.
    """

    wire = ConnectionLimits()
    idle_since = 0.0
    _stage = _BETWEEN
    _begun: Any = None
    _answering: Any = None
    _head_bytes = 0
    _chunked: Any = None
    _overfull: Any = None
    _chunks = 0
    _chunked_bytes = 0
    _body_bytes = 0
    _held = False
    _refusal: tuple[int, str] | None = None
    _first_look: ConnectionProbe | None = None
    _account: BufferAccount
    _activity: LoopActivity
    charged = 0
    _counted: Any = None
    _counted_bytes = 0
    _unsent_charged = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._account = self.wire.budget.open()
        self._activity = self.wire.activity
        super().connection_made(transport)
        if not self._account.open:
            _log.warning("HTTP connection refused: the server's buffers are full")
            transport.abort()
            return
        self.idle_since = self.loop.time()
        self._look_later()

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave_cycles()
        self.pipeline.clear()
        if self.timeout_keep_alive_task is not None:
            self.timeout_keep_alive_task.cancel()
            self.timeout_keep_alive_task = None
        super().connection_lost(exc)
        self._account.close()

    def _start_asgi_task(self, cycle: Any, app: Any) -> None:
        self._answering = cycle
        super()._start_asgi_task(cycle, app)

    def _leave_cycles(self) -> None:
        """Nobody is there for the answers any more: what still runs writes to a closed transport,
        which uvloop takes for a fault."""
        for cycle in (self._answering, self.cycle, *(one for one, _ in self.pipeline)):
            if cycle is not None and not cycle.response_complete:
                cycle.disconnected = True
                cycle.message_event.set()

    # bytes come in

    def data_received(self, data: bytes) -> None:
        if self._activity.resting:
            self._activity.wake()
        self.idle_since = 0.0
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._end_after_answer()  # as plain HTTP/1.1; the parser reads no further
        except httptools.HttpParserError:
            self._break_off(self._refusal or (400, "Invalid HTTP request received."))
        else:
            if self._stage == _HEAD:
                self._count_head(len(data))
            elif self._stage == _BODY:
                if self._chunked is self.headers:
                    self._count_chunked(len(data))
                self._charge_body()

    def _end_after_answer(self) -> None:
        if self.cycle.response_complete:
            self.transport.close()
        else:
            self.cycle.keep_alive = False

    def _count_head(self, size: int) -> None:
        """A head that did not come in one piece; its first piece may share a read with others."""
        self._head_bytes = 0 if self._begun is not self.headers else self._head_bytes + size
        self._begun = self.headers
        if self._head_bytes > self.wire.head_bytes:
            self._break_off((431, f"The head of a request may have {self.wire.head_bytes} bytes."))

    def _count_chunked(self, size: int) -> None:
        """What travels beside the chunks' data: their extensions, and trailers."""
        self._chunked_bytes += size
        beside = self._chunked_bytes - self._received_bytes()
        if beside > _BESIDE_CHUNKS_BYTES + _BESIDE_CHUNK_BYTES * self._chunks:
            self._break_off((400, "The request's chunk extensions or trailers are too long."))

    def _charge_body(self) -> None:
        """Count a body that did not come in one read: as long as its head says, or as it is."""
        if self._counted is not self.headers:
            self._counted, self._counted_bytes = self.headers, 0
            declared = next((int(v) for k, v in self.headers if k == b"content-length"), 0)
        else:
            declared = 0
        size = min(max(self._received_bytes(), declared), self.wire.body_bytes)
        if size <= self._counted_bytes or self.transport.is_closing():
            return
        if refusal := self.charge(size - self._counted_bytes):
            self._break_off((503, refusal))
        self._counted_bytes = size

    def charge(self, size: int) -> str:
        """Hold `size` bytes until all requests are answered; "" or why they do not fit."""
        refusal = self._account.charge(size)
        if not refusal:
            self.charged += size
        return refusal

    def release_bodies(self) -> None:
        """The last request that came is answered."""
        if self._stage == _BETWEEN and not self.pipeline:
            self._account.release(self.charged)
            self.charged = 0

    def on_message_begin(self) -> None:
        self._stage = _HEAD
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._stage = _BODY
        self._body_bytes = 0
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self.check_chunks()
        self._body_bytes += len(body)
        super().on_body(body)

    def on_chunk_header(self) -> None:
        if self._chunked is not self.headers:
            self._chunked = self.headers
            self._chunks = self._chunked_bytes = 0
        self._chunks += 1
        if self._chunks > self.wire.chunks:
            self._overfull = self.headers  # unless this is the last one, which is empty

    def check_chunks(self) -> None:
        """Refuse a body of too many chunks, once the one too many turns out to hold something."""
        if self._overfull is self.headers:
            self._refusal = (
                400,
                f"The request body has more than {self.wire.chunks} chunks. "
                "Send larger chunks, or use --http-max-chunk-count to increase the limit.",
            )
            raise _ParserStopped

    def on_message_complete(self) -> None:
        self._stage = _BETWEEN
        super().on_message_complete()

    def _break_off(self, refusal: tuple[int, str]) -> None:
        """Say why and close; earlier requests, which came whole, are answered first."""
        if self.transport.is_closing():
            return
        cycle = self.cycle
        if self._stage != _BODY and cycle is not None and not cycle.response_complete:
            cycle.keep_alive = False
            self.flow.pause_reading()
            return
        begun = self._stage == _BODY and getattr(cycle, "response_started", False)
        if not self.pipeline and not begun:
            status, text = refusal
            body = orjson.dumps({"error": text})  # server.rest.errors would bring the schedulers
            head = (
                b"Content-Type: application/json\r\nContent-Length: %d\r\nConnection: close\r\n\r\n"
            )
            self.transport.write(b"".join((STATUS_LINE[status], head % len(body), body)))
        self._leave_cycles()
        self.transport.close()

    # answers go out

    def pause_writing(self) -> None:
        super().pause_writing()
        self.flow.pause_reading()  # a client that does not read its answers sends no more requests
        unsent = self.transport.get_write_buffer_size()
        if refusal := self._account.charge(unsent):
            _log.info("an HTTP response is dropped: %s", refusal)
            self.loop.call_soon(self.transport.abort)
        else:
            self._unsent_charged += unsent

    def resume_writing(self) -> None:
        super().resume_writing()
        self._account.release(self._unsent_charged)
        self._unsent_charged = 0
        if self._held:
            self._held = False
            self._start_next()
        elif not self.pipeline:
            self.flow.resume_reading()

    def on_response_complete(self) -> None:
        self.server_state.total_requests += 1
        if self.charged:
            self.release_bodies()
        if self.transport.is_closing():
            return
        if self.pipeline:
            self.loop.call_soon(self._start_next)  # from the loop: requests may be many
            return
        if not self.flow.write_paused:
            self.flow.resume_reading()
        self.idle_since = self.loop.time()

    def _start_next(self) -> None:
        """Start the next pipelined request, when there is memory for its answer."""
        if self.transport.is_closing() or not self.pipeline:
            return
        if self.flow.write_paused:
            self._held = True
            return
        cycle, app = self.pipeline.pop()
        if not self.pipeline:
            self.flow.resume_reading()
        self._start_asgi_task(cycle, app)

    # dawdling clients

    def _unset_keepalive_if_required(self) -> None:
        """uvicorn's timer per request; ours is the look."""

    def _look_later(self) -> None:
        self.timeout_keep_alive_task = self.loop.call_later(self.wire.look_s, self._look)

    def _look(self) -> None:
        now, stall_s = self._probe(), self.wire.stall_s
        if self.transport.is_closing() and not now.unsent:
            return
        first = self._first_look
        if first is None or not same_wait(first, now, stall_s):
            first = self._first_look = now
        if now.at_s - first.at_s >= stall_s:
            self._leave_cycles()
            self.transport.abort()  # close() would wait for what the client does not take
        elif not now.unsent and self._is_idle() and self._idle_s() >= self.wire.keep_alive_s:
            self.transport.close()
        else:
            self._look_later()

    def _probe(self) -> ConnectionProbe:
        receiving = self._stage != _BETWEEN and not self.flow.read_paused
        return ConnectionProbe(
            self.loop.time(),
            self.headers if receiving else None,
            self._received_bytes() if self._stage == _BODY else 0,
            self.transport.get_write_buffer_size(),
            self._answering is not None and not self._answering.response_complete,
        )

    def _received_bytes(self) -> int:
        """Of the body that is coming in."""
        return self._body_bytes

    def _idle_s(self) -> float:
        return self.loop.time() - self.idle_since

    def _is_idle(self) -> bool:
        if self._stage != _BETWEEN or self.pipeline:
            return False
        if self.cycle is not None and not self.cycle.response_complete:
            return False
        self.idle_since = self.idle_since or self.loop.time()
        return True


def same_wait(first: ConnectionProbe, now: ConnectionProbe, stall_s: float) -> bool:
    """Whether the server still waits for what it waited for at `first`.

    A client that took its share of an answer, or sent its share of a body, is no longer waited
    for. While an answer is still being written, whatever is taken makes room for more of it: any
    byte less is progress then.
    """
    if now.unsent and now.writing:
        return now.unsent >= first.unsent > 0
    if now.unsent:
        taken = first.unsent - now.unsent
        return first.unsent > 0 and taken < min(first.unsent, SLOWEST_BYTES_PER_S * stall_s)
    sent = now.received - first.received
    if now.message is None or now.message is not first.message:
        return False
    return sent < SLOWEST_BYTES_PER_S * stall_s

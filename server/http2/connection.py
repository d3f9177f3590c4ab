"""One HTTP/2 connection: a socket's life from the greeting to the last answer.

Made by `server.http2.listener` for each client. Bytes are cut into frames and go to the
`Http2Session`, which knows the rules; what is written goes out once per turn of the loop.
"""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from typing import cast

from server.buffers import BufferAccount
from server.http2.limits import GrpcLimits
from server.http2.sender import WRITE_BYTES, Sender
from server.http2.session import CONNECTION_WINDOW, Http2Session
from server.http2.stream import STREAM_WINDOW, StreamService
from server.http2.stream_capacity import MAX_STREAMS
from server.http2.timeouts import StreamTimeouts
from server.http2.wire.frames import (
    DEFAULT_WINDOW,
    HEAD,
    HEAD_BYTES,
    MAX_ID,
    PING,
    PREFACE,
    ConnectionFault,
    ErrorCode,
    Http2Setting,
    frame,
    goaway,
    settings,
    window_update,
)
from server.http2.wire.hpack import LIST_BYTES

GREETING_S = 20.0
"""How long a client may take to begin to speak HTTP/2."""
LINGER_S = 0.5
"""How long it may take to read why it was sent away, and to close its side."""
DRAIN_ECHO_S = 1.0
MAX_FRAME_BYTES = 128 * 1024
"""Largest frame taken: large tensors come in few frames, and a peer makes us hold no more."""
_DRAINING = b"draining"
_OFFERED = settings(
    {
        Http2Setting.MAX_CONCURRENT_STREAMS: MAX_STREAMS,
        Http2Setting.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
        Http2Setting.MAX_FRAME_SIZE: MAX_FRAME_BYTES,
        Http2Setting.MAX_HEADER_LIST_SIZE: LIST_BYTES,
    }
)

Frame = tuple[int, int, int, bytes]
"""Kind, flags, stream id, payload; unnamed because there are two or three to a request."""

_NO_PREFACE = "this port serves gRPC, over HTTP/2 with prior knowledge"
_ID_MASK = 0x7FFFFFFF
_unpack = HEAD.unpack_from

_log = logging.getLogger(__name__)


class Http2Connection(asyncio.Protocol):
    """One client. `on_here(self)` is called when it is connected (TLS included), `on_gone(self)`
    when the socket is closed. Holds nothing of the budget of `limits` before it is connected: of a
    handshake that fails, uvloop tells nobody."""

    _account: BufferAccount
    _sender: Sender
    _session: Http2Session
    _timeouts: StreamTimeouts

    def __init__(
        self,
        service: StreamService,
        on_here: Callable[["Http2Connection"], None],
        on_gone: Callable[["Http2Connection"], None],
        limits: GrpcLimits,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._service = service
        self._on_here = on_here
        self._on_gone = on_gone
        self._limits = limits
        self._stall_s = limits.send_timeout_s
        self._activity = limits.activity
        self._splitter = Splitter()
        self._held_by_socket = 0
        self._transport: asyncio.Transport | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stall: asyncio.TimerHandle | None = None
        self._draining = False
        self._closing = False

    # asyncio's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._begin()
        self._transport = self._sender.transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=WRITE_BYTES)
        self._on_here(self)
        if not self._account.open:
            _log.warning("gRPC connection refused: the server's buffers are full")
            self._closing = True
        if self._closing:
            self._transport.abort()
            return
        raw = transport.get_extra_info("socket")
        if raw is not None:
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        self._start_timer(GREETING_S, self._give_up_on_silence)
        self._timeouts.start()
        self._sender.control(_OFFERED, window_update(0, CONNECTION_WINDOW - DEFAULT_WINDOW))

    def _begin(self) -> None:
        loop, limits = self._loop, self._limits
        self._account = limits.budget.open()
        self._sender = Sender(loop, self._account)
        self._session = Http2Session(
            self._service, self._sender, loop.time, self._close_if_drained, self._echoed
        )
        self._timeouts = StreamTimeouts(loop, limits, self._session, self._sender, self.abort)

    def data_received(self, data: bytes) -> None:
        if self._closing:
            return
        if self._activity.resting:
            self._activity.wake()
        sender, session = self._sender, self._session
        sender.corked = True
        try:
            for kind, flags, stream_id, payload in self._splitter.feed(data):
                session.take(kind, flags, stream_id, payload)
            if sender.overrun():
                raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "answers are not read")
        except ConnectionFault as fault:
            self._fail(fault)
        finally:
            sender.corked = False
            sender.flush()

    def pause_writing(self) -> None:
        self._sender.pause()
        self._watch_reader()
        if self._transport is not None:
            self._held_by_socket = self._transport.get_write_buffer_size()
            self._account.hold(self._held_by_socket)

    def resume_writing(self) -> None:
        if not self._closing:
            self._stop_watching()
        self._account.release(self._held_by_socket)
        self._held_by_socket = 0
        self._sender.resume()

    def eof_received(self) -> None:
        """The client has closed its side, and we close ours."""

    def connection_lost(self, error: Exception | None) -> None:
        self._closing = True
        self._sender.transport = None
        self._stop_timer()
        self._stop_watching()
        self._timeouts.stop()
        self._session.abort()
        self._account.close()
        self._on_gone(self)

    # the server's side

    def drain(self) -> None:
        """Ask the client to send no more, answer what comes meanwhile and what is inside; close.

        RFC 9113, section 6.8: a GOAWAY that refuses nothing, a round trip, then one that says
        which request was the last.
        """
        if self._draining or self._closing:
            return
        self._draining = True
        if not self._session.settled:
            self._close()
            return
        self._sender.control(goaway(MAX_ID, ErrorCode.NO_ERROR), frame(PING, 0, 0, _DRAINING))
        self._start_timer(DRAIN_ECHO_S, self._accept_no_more)

    def abort(self) -> None:
        """Close at once; calls inside are cancelled."""
        self._closing = True
        if self._transport is not None:
            self._transport.abort()

    def _echoed(self, payload: bytes) -> None:
        if self._draining and payload == _DRAINING:
            self._accept_no_more()

    def _accept_no_more(self) -> None:
        if self._session.accepted_until == MAX_ID and not self._closing:
            self._stop_timer()
            self._session.accepted_until = self._session.last_id
            self._sender.control(goaway(self._session.last_id, ErrorCode.NO_ERROR))
            self._close_if_drained()

    def _close_if_drained(self) -> None:
        if self._session.accepted_until != MAX_ID and self._session.empty and not self._closing:
            self._close()

    def _give_up_on_silence(self) -> None:
        if not self._session.settled:
            self.abort()

    def _fail(self, fault: ConnectionFault) -> None:
        _log.info("gRPC connection closed: %s: %s", fault.code.name, fault)
        self._sender.control(goaway(self._session.last_id, fault.code, str(fault)))
        self._closing = True
        self._session.abort()
        self._close()

    def _close(self) -> None:
        """Write what there is, say that it is all, and wait a little for the client to close."""
        self._closing = True
        self._sender.close()
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        if transport.can_write_eof():
            transport.write_eof()
            self._start_timer(LINGER_S, transport.abort)
        else:
            transport.close()  # waits until the client has taken what is left
            self._watch_reader()

    def _watch_reader(self) -> None:
        """See after a while whether the client took any of what the socket holds for it."""
        self._stop_watching()
        if self._transport is not None:
            held = self._transport.get_write_buffer_size()
            self._stall = self._loop.call_later(self._stall_s, self._look, held)

    def _look(self, held: int) -> None:
        transport = self._transport
        if transport is not None and transport.get_write_buffer_size() >= held:
            _log.info("gRPC connection closed: the client read nothing for %g s", self._stall_s)
            self.abort()
        else:
            self._watch_reader()

    def _stop_watching(self) -> None:
        if self._stall is not None:
            self._stall.cancel()
            self._stall = None

    def _start_timer(self, delay_s: float, act: Callable[[], None]) -> None:
        self._stop_timer()
        self._timer = self._loop.call_later(delay_s, act)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Splitter:
    """Cuts the bytes of one direction into frames. Keeps at most one frame and what came with it,
    in the pieces that came until it is whole, so that slow senders cost no copying."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._needed_bytes = len(PREFACE)
        self.greeted = False

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes. Raises ConnectionFault; feed nothing after that."""
        if self._chunks:
            self._chunks.append(data)
            self._size += len(data)
            if self._size < self._needed_bytes and self.greeted:
                return
            data = b"".join(self._chunks)
            self._chunks.clear()
        position = 0
        if not self.greeted:
            if not self._greets(data):
                self._keep(data, len(PREFACE))
                return
            position = len(PREFACE)
        size = len(data)
        while (start := position + HEAD_BYTES) <= size:
            high, low, kind, flags, stream_id = _unpack(data, position)
            length = high << 16 | low
            end = start + length
            if end > size or length > MAX_FRAME_BYTES:
                self._begin_frame(data[position:], length)
                return
            position = end
            yield kind, flags, stream_id & _ID_MASK, data[start:end]
        self._keep(data[position:], HEAD_BYTES)

    def _begin_frame(self, rest: bytes, length: int) -> None:
        """One that is not whole, or too large. Raises ConnectionFault for that."""
        if length > MAX_FRAME_BYTES:
            text = f"a frame of {length} bytes, over {MAX_FRAME_BYTES}"
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, text)
        self._keep(rest, HEAD_BYTES + length)

    def _keep(self, rest: bytes, needed_bytes: int) -> None:
        self._size, self._needed_bytes = len(rest), needed_bytes
        if rest:
            self._chunks.append(rest)

    def _greets(self, data: bytes) -> bool:
        """Whether the whole preface is there. Raises ConnectionFault where it cannot become one."""
        if not data.startswith(PREFACE[: len(data)]):
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, _NO_PREFACE)
        self.greeted = len(data) >= len(PREFACE)
        return self.greeted

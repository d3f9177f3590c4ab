"""The rules of HTTP/2 on one connection (RFC 9113): frames become streams, settings, windows.

`server.http2.connection` hands over every frame; requests go on to the `StreamService`, answers
leave by `server.http2.sender`. No socket and no loop: a peer's fault is raised as ConnectionFault.
"""

from collections.abc import Callable, Mapping

from server.http2.header_blocks import HeaderBlocks
from server.http2.sender import OutgoingStream, Sender
from server.http2.stream import Http2Stream, MalformedHeaders, StreamHead, StreamService
from server.http2.stream_capacity import MAX_STREAMS, StreamCapacity
from server.http2.token_bucket import TokenBucket
from server.http2.wire.frames import (
    ACK,
    CONTINUATION,
    END_HEADERS,
    END_STREAM,
    MAX_ID,
    PADDED,
    PING,
    PRIORITISED,
    SETTINGS,
    ConnectionFault,
    ErrorCode,
    Http2Setting,
    StreamFault,
    block_of,
    frame,
    rst_stream,
    settings_of,
    window_update,
    without_padding,
    word_of,
)

CONNECTION_WINDOW = 16 * 1024 * 1024
RESETS = (4000, 1000)
"""Burst, and per second: streams reset by the peer or because of it."""
IDLE_FRAMES = (10_000, 2000)
"""The same for frames that make us work or answer and carry nothing, beyond those that our own
messages cause."""
_IDLE_EACH = 4
"""Such frames for each message or DATA frame of ours: a client of gRPC's C core gives the 5 bytes
of a message's prefix back by themselves, on the stream and on the connection, and one in Go pings
to learn how fast the connection is."""
_MOST_SAVED = 10_000
"""And so many at once, however many messages there were: a window holds fewer small ones."""
_SETTINGS_COST, _SETTINGS_UNIT_BYTES = 10, 256
"""Of a SETTINGS frame, and one more for each so many bytes of it."""
_TINY_INCREMENT = 64
"""A WINDOW_UPDATE of less carries nothing."""
HEADER_BYTES = (16 * 2**20, 4 * 2**20)
"""Burst, and per second: bytes of decoded header lists, beyond the first 2 KiB of each."""
_REMEMBERED_RESETS = 2 * MAX_STREAMS
"""Streams we have reset, whose last frames may still be on their way."""


class Http2Session:
    """The streams of one connection. `now`: seconds, on any clock that does not go back.

    `on_empty` is called when the last open stream has gone, `on_echo(payload)` for the answer to
    a PING of ours. Requests after stream `accepted_until` are refused.
    """

    def __init__(
        self,
        service: StreamService,
        sender: Sender,
        now: Callable[[], float],
        on_empty: Callable[[], None],
        on_echo: Callable[[bytes], None],
    ) -> None:
        self.settled = False
        self.last_id = 0
        self.accepted_until = MAX_ID
        self._service = service
        self._sender = sender
        self._now = now
        self._on_empty = on_empty
        self._on_echo = on_echo
        self._blocks = HeaderBlocks(service, self._spend_header)
        self._streams: dict[int, Http2Stream] = {}
        self._were_reset: dict[int, None] = {}
        self._window = CONNECTION_WINDOW
        self._granted = CONNECTION_WINDOW
        self._room = StreamCapacity(sender.account)
        self._expects: int | None = SETTINGS
        self._resets = TokenBucket(*RESETS, now())
        self._idle_frames = TokenBucket(*IDLE_FRAMES, now())
        self._idle = 0
        self._header_bytes = TokenBucket(*HEADER_BYTES, now())
        sender.on_end = self._written

    @property
    def empty(self) -> bool:
        """Whether no stream is open."""
        return not self._streams

    @property
    def streams(self) -> Mapping[int, Http2Stream]:
        """The open ones."""
        return self._streams

    @property
    def received(self) -> int:
        """Bytes of DATA that have come on all streams."""
        return self._granted - self._window

    def cancel(self, stream: Http2Stream) -> None:
        """End a stream whose answer is not taken."""
        self._write_reset(stream.id, ErrorCode.CANCEL)
        self._abort(stream)

    def take(self, kind: int, flags: int, stream_id: int, payload: bytes) -> None:
        """One frame. Raises ConnectionFault; take no more after that."""
        if self._expects is not None and kind != self._expects:
            text = f"a frame of kind {kind} where kind {self._expects} must come"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, text)
        try:
            if kind <= CONTINUATION:
                self._TAKE[kind](self, flags, stream_id, payload)
            else:
                self._spend_idle()
        except StreamFault as fault:
            self._break(fault)

    def abort(self) -> None:
        """Cancel every open stream: nobody reads the answers."""
        for stream in list(self._streams.values()):
            self._abort(stream)

    # requests

    def _headers(self, flags: int, stream_id: int, payload: bytes) -> None:
        if not stream_id & 1:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"HEADERS on stream {stream_id}")
        if flags & (PADDED | PRIORITISED):
            payload = block_of(flags, payload)
        if flags & END_HEADERS:
            self._read(stream_id, flags, payload)
        else:
            self._blocks.begin(stream_id, flags, payload)
            self._expects = CONTINUATION

    def _continuation(self, flags: int, stream_id: int, payload: bytes) -> None:
        if self._expects != CONTINUATION:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of nothing")
        block = self._blocks.go_on(stream_id, flags, payload)
        if block is not None:
            self._expects = None
            self._read(block.stream_id, block.flags, block.data)

    def _read(self, stream_id: int, flags: int, block: bytes) -> None:
        """Decode in any case: what follows on other streams depends on it."""
        head, reason = None, ""
        try:
            head = self._blocks.read(block)
        except MalformedHeaders as error:
            reason = str(error)
        if stream_id <= self.last_id:
            self._trailers(stream_id, flags)
            return
        self.last_id = stream_id
        if head is None:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, reason)
        full = len(self._streams) >= self._room.size and not self._room.grow()
        if full or stream_id > self.accepted_until:
            raise StreamFault(stream_id, ErrorCode.REFUSED_STREAM, "no further stream is taken")
        self._open(stream_id, flags, head)

    def _open(self, stream_id: int, flags: int, head: StreamHead) -> None:
        stream = self._streams[stream_id] = Http2Stream(stream_id, self._sender)
        stream.expected = head.content_length
        stream.received_all = bool(flags & END_STREAM)
        receiver = self._service.open(stream, head)
        if not stream.ended:
            stream.receiver = receiver
        if flags & END_STREAM:
            self._received_all(stream)

    def _trailers(self, stream_id: int, flags: int) -> None:
        """A second header block ends a request; what it says is of no interest to gRPC."""
        stream = self._receiving(stream_id)
        if stream is None:
            return
        if not flags & END_STREAM:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "trailers that end nothing")
        self._received_all(stream)

    def _data(self, flags: int, stream_id: int, payload: bytes) -> None:
        size = len(payload)
        self._count(size)
        stream = self._receiving(stream_id)
        if stream is None:
            return
        stream.receive_window -= size
        if stream.receive_window < 0:
            raise StreamFault(stream_id, ErrorCode.FLOW_CONTROL_ERROR, "over the stream's window")
        if flags & PADDED:
            payload = without_padding(flags, payload)
            stream.release(size - len(payload))
        if stream.expected is not None:
            stream.expected -= len(payload)
            if stream.expected < 0:
                text = "more than content-length said"
                raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, text)
        if not payload and not flags & END_STREAM:
            self._spend_idle()
        elif payload and stream.receiver is not None:
            stream.receiver.received(payload, bool(flags & END_STREAM))
        if flags & END_STREAM:
            self._received_all(stream)

    def _count(self, size: int) -> None:
        """Hold DATA against the connection's window; its bytes are never held back here."""
        self._window -= size
        if self._window < 0:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "more than the connection's window")
        if self._window < CONNECTION_WINDOW // 2:
            self._sender.control(window_update(0, CONNECTION_WINDOW - self._window))
            self._granted += CONNECTION_WINDOW - self._window
            self._window = CONNECTION_WINDOW

    def _receiving(self, stream_id: int) -> Http2Stream | None:
        """The stream that may still get DATA or trailers; None if we have reset it meanwhile.

        Raises StreamFault for one whose request has ended, ConnectionFault for one never opened.
        """
        stream = self._streams.get(stream_id)
        if stream is None:
            self._check_opened(stream_id)
            if stream_id in self._were_reset:
                return None
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, "the stream has ended")
        if stream.received_all:
            raise StreamFault(stream_id, ErrorCode.STREAM_CLOSED, "the request has ended")
        return stream

    def _check_opened(self, stream_id: int) -> None:
        if stream_id > self.last_id or not stream_id & 1:
            text = f"a frame for stream {stream_id}, which was never opened"
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, text)

    # ends of streams

    def _received_all(self, stream: Http2Stream) -> None:
        if stream.expected:
            text = f"{stream.expected} bytes fewer than content-length said"
            raise StreamFault(stream.id, ErrorCode.PROTOCOL_ERROR, text)
        stream.received_all = True
        if stream.receiver is not None:
            stream.receiver.ended()

    def _written(self, ended: OutgoingStream) -> None:
        """END_STREAM is on its way; a peer still sending is told that nobody listens (8.1)."""
        stream = self._streams[ended.id]
        if not stream.received_all:
            self._write_reset(stream.id, ErrorCode.NO_ERROR)
        self._forget(stream)

    def _rst_stream(self, flags: int, stream_id: int, payload: bytes) -> None:
        word_of(payload, "RST_STREAM")
        self._check_opened(stream_id)
        stream = self._streams.get(stream_id)
        if stream is None:
            self._spend_idle()
            return
        self._abort(stream)
        self._spend_reset()

    def _break(self, fault: StreamFault) -> None:
        """End one stream because its peer broke it."""
        self._write_reset(fault.stream_id, fault.code)
        stream = self._streams.get(fault.stream_id)
        if stream is not None:
            self._abort(stream)
        self._spend_reset()

    def _abort(self, stream: Http2Stream) -> None:
        receiver = stream.receiver
        self._sender.drop(stream)
        self._forget(stream)
        if receiver is not None:
            receiver.aborted()

    def _write_reset(self, stream_id: int, code: ErrorCode) -> None:
        self._sender.control(rst_stream(stream_id, code))
        self._were_reset[stream_id] = None
        if len(self._were_reset) > _REMEMBERED_RESETS:
            del self._were_reset[next(iter(self._were_reset))]

    def _forget(self, stream: Http2Stream) -> None:
        del self._streams[stream.id]
        stream.receiver = None
        if not self._streams:
            self._room.give_back()
            self._on_empty()

    # the connection's own frames

    def _settings(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._require_connection(stream_id, "SETTINGS")
        if flags & ACK:
            if payload:
                raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, "SETTINGS ACK with a payload")
            if not self.settled:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "SETTINGS ACK before SETTINGS")
            return
        if self.settled:
            self._spend_idle(_SETTINGS_COST + len(payload) // _SETTINGS_UNIT_BYTES)
        self.settled, self._expects = True, None
        for setting, value in dict(settings_of(payload)).items():  # the last of each kind holds
            if setting == Http2Setting.INITIAL_WINDOW_SIZE:
                self._sender.set_initial_window(value, self._streams.values())
            elif setting == Http2Setting.MAX_FRAME_SIZE:
                self._sender.max_frame = value
        self._sender.control(frame(SETTINGS, ACK, 0))

    def _ping(self, flags: int, stream_id: int, payload: bytes) -> None:
        self._require_connection(stream_id, "PING")
        if len(payload) != 8:
            text = f"PING of {len(payload)} bytes, not 8"
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, text)
        self._spend_idle()
        if flags & ACK:
            self._on_echo(payload)
        else:
            self._sender.control(frame(PING, ACK, 0, payload))

    def _window_update(self, flags: int, stream_id: int, payload: bytes) -> None:
        increment = word_of(payload, "WINDOW_UPDATE") & MAX_ID
        if increment < _TINY_INCREMENT:
            self._spend_idle()
        if stream_id == 0:
            if not increment:
                raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
            self._sender.widen(increment)
            return
        self._check_opened(stream_id)
        if not increment:
            raise StreamFault(stream_id, ErrorCode.PROTOCOL_ERROR, "WINDOW_UPDATE of 0")
        stream = self._streams.get(stream_id)
        if stream is not None:
            self._sender.widen_stream(stream, increment)

    def _priority(self, flags: int, stream_id: int, payload: bytes) -> None:
        if stream_id == 0:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PRIORITY of stream 0")
        if len(payload) != 5:
            text = f"PRIORITY of {len(payload)} bytes, not 5"
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, text)
        self._spend_idle()

    def _goaway(self, flags: int, stream_id: int, payload: bytes) -> None:
        """The peer will ask for nothing more; it closes when it has its answers."""
        self._require_connection(stream_id, "GOAWAY")
        if len(payload) < 8:
            raise ConnectionFault(ErrorCode.FRAME_SIZE_ERROR, f"GOAWAY of {len(payload)} bytes")
        self._spend_idle()

    def _push_promise(self, flags: int, stream_id: int, payload: bytes) -> None:
        raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "PUSH_PROMISE from a client")

    def _require_connection(self, stream_id: int, kind: str) -> None:
        if stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, f"{kind} on stream {stream_id}")

    def _spend_reset(self) -> None:
        if not self._resets.spend(self._now()):
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many streams are reset")

    def _spend_idle(self, cost: int = 1) -> None:
        free = _IDLE_EACH * self._sender.carried
        self._idle = max(self._idle, free - _MOST_SAVED) + cost
        if self._idle <= free:
            return
        if not self._idle_frames.spend(self._now(), cost):
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many frames that carry nothing")

    def _spend_header(self, size: int) -> None:
        if not self._header_bytes.spend(self._now(), size):
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, "too many bytes of headers")
        if refusal := self._room.pay_for_head(size):
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, refusal)

    _TAKE = (
        _data,
        _headers,
        _priority,
        _rst_stream,
        _settings,
        _push_promise,
        _ping,
        _goaway,
        _window_update,
        _continuation,
    )
    """By the frame's kind."""

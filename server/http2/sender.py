"""The outgoing half of a connection: frames leave within the peer's windows, streams in turn.

`server.http2.connection` and the streams write here; one `transport.write` per turn of the loop
carries what they wrote. DATA that does not fit the windows, or a socket that is full, waits in its
stream (`OutgoingStream`); all other frames leave with the next write.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from server.buffers import BufferAccount
from server.http2.stall_detector import PeerWait
from server.http2.wire.frames import (
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEADERS,
    MAX_WINDOW,
    ConnectionFault,
    ErrorCode,
    StreamFault,
)

Buffer = bytes | memoryview

WRITE_BYTES = 256 * 1024
"""DATA handed to the transport at once, and the most it should hold before it says stop."""
ROOM_BYTES = 64 * 1024
"""A stream with less than this waiting may write on."""
PIECES_BYTES = 128
"""The price of what one call of `Sender.data` adds, beside its bytes."""
OVERRUN = 20_000
"""Pieces that may wait for a peer that makes us answer and does not read."""
OVERRUN_BYTES = 8 * 1024 * 1024
"""And their bytes: a thousand calls that fail in long words."""
_LAST = END_HEADERS | END_STREAM


class OutgoingStream:
    """The sending half of one stream: its window, and what waits for it.

    `backlog`: bytes that wait. `ended`: END_STREAM or a reset went out, or a reset came in;
    nothing more can leave.
    """

    __slots__ = (
        "_charged",
        "_room",
        "_trailers",
        "_turn",
        "_waits",
        "backlog",
        "ended",
        "id",
        "send_window",
        "sent",
    )

    def __init__(self, stream_id: int, send_window: int) -> None:
        self.id = stream_id
        self.send_window = send_window
        self.backlog = 0
        self.sent = 0
        """Bytes that had to wait and have left."""
        self.ended = False
        self._charged = 0
        self._waits: deque[Buffer] | None = None
        self._trailers: bytes | None = None
        self._turn = False
        self._room: asyncio.Future[None] | None = None

    async def room(self) -> None:
        """Return when little waits, or nothing will ever leave. For one waiter at a time."""
        while self.backlog > ROOM_BYTES and not self.ended:
            self._room = asyncio.get_running_loop().create_future()
            await self._room

    def _wake(self) -> None:
        if self._room is not None and not self._room.done():
            self._room.set_result(None)


class Sender:
    """What one connection writes. `on_end(stream)` is called when a stream's END_STREAM is written.

    While `corked`, nothing is written before `flush` is called; else that happens by itself.
    """

    on_end: Callable[[OutgoingStream], None]

    def __init__(self, loop: asyncio.AbstractEventLoop, account: BufferAccount) -> None:
        self.account = account
        self.window = DEFAULT_WINDOW
        self.initial_window = DEFAULT_WINDOW
        self.max_frame = DEFAULT_FRAME_BYTES
        self.corked = False
        self.transport: asyncio.Transport | None = None
        self.carried = 0
        """Messages and DATA frames written: a peer may answer them with frames of its own."""
        self._loop = loop
        self._paused = False
        self._out: list[Buffer] = []
        self._due = False
        self._turns: deque[OutgoingStream] = deque()
        self._sent = 0
        self._counted = 0
        self._unread = 0
        """Bytes of the first `_counted` pieces of `_out`, counted while the socket is full."""

    def overrun(self) -> bool:
        """Whether the peer has us write more and more and reads none of it."""
        if not self._paused:
            return False
        size = sum(map(len, self._out[self._counted :]))
        self._counted = len(self._out)
        self._unread += size
        self.account.hold(size)
        return self._counted > OVERRUN or self._unread > OVERRUN_BYTES

    # what streams and connection write

    def control(self, *pieces: Buffer) -> None:
        """Whole frames that no window holds back."""
        self._out += pieces
        self._schedule()

    def headers(self, stream: OutgoingStream, block: bytes) -> None:
        """The head of a response, once, which DATA and trailers follow."""
        self.control(_header_frame(stream, END_HEADERS, block))

    def answer(
        self, stream: OutgoingStream, block: bytes, prefix: bytes, message: bytes, trailers: bytes
    ) -> str:
        """A whole response: head, body (`prefix` + `message`), trailers; at once where windows and
        socket allow, which is nearly always. "" or, where it must wait and the buffers refuse it,
        why; then nothing was written."""
        size = len(prefix) + len(message)
        if self._paused or size > min(self.window, stream.send_window, self.max_frame):
            refusal = self.data(stream, prefix, message, block=block)
            if not refusal:
                self.finish(stream, trailers)
            return refusal
        self.window -= size
        self.carried += 1
        self._out += (
            HEAD.pack(0, len(block), HEADERS, END_HEADERS, stream.id),
            block,
            HEAD.pack(size >> 16, size & 0xFFFF, DATA, 0, stream.id),
            prefix,
            message,
            HEAD.pack(0, len(trailers), HEADERS, _LAST, stream.id),
            trailers,
        )
        self._schedule()
        self._end(stream)
        return ""

    def data(self, stream: OutgoingStream, *pieces: bytes, block: bytes = b"") -> str:
        """Bytes that leave in order, as windows and socket allow (see `OutgoingStream.room` for
        when to write on); `block`, if there is one, is the head in front of them. "" or, where the
        buffers refuse them, why; then none is kept."""
        if stream.ended:
            return ""
        size = sum(map(len, pieces))
        if refusal := self.account.charge(size + PIECES_BYTES):
            return refusal
        if block:
            self.headers(stream, block)
        self.carried += 1
        stream._charged += size + PIECES_BYTES
        if stream._waits is None:
            stream._waits = deque()
        stream._waits.extend(pieces)
        stream.backlog += size
        self._take_turn(stream)
        return ""

    def finish(self, stream: OutgoingStream, trailers: bytes) -> None:
        """The last header block of a stream, behind what waits: trailers, or a head without a
        body."""
        if stream.ended:
            return
        if stream.backlog:
            stream._trailers = trailers
            return
        self._finish(stream, trailers)

    def drop(self, stream: OutgoingStream) -> None:
        """Nothing more leaves on this stream."""
        stream.ended = True
        stream.backlog = 0
        stream._waits = None
        self._give_back(stream, stream._charged)
        stream._wake()

    def awaits(self, stream: OutgoingStream) -> PeerWait | None:
        """What of an answer the peer leaves no window for; None where that is not the reason."""
        if not stream.backlog or stream.send_window > 0:
            return None
        return PeerWait("stream", stream.backlog, stream.backlog, stream.sent)

    def awaits_any(self, streams: Iterable[OutgoingStream]) -> PeerWait | None:
        """What of all answers waits for the connection's window or for the socket."""
        backlog = sum(stream.backlog for stream in streams if stream.send_window > 0)
        return PeerWait("connection", backlog, backlog, self._sent) if backlog else None

    # what the peer allows

    def widen(self, increment: int) -> None:
        """WINDOW_UPDATE of the connection. Raises ConnectionFault."""
        self.window += increment
        if self.window > MAX_WINDOW:
            raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "the connection's window overflows")
        if self._turns:
            self._schedule()

    def widen_stream(self, stream: OutgoingStream, increment: int) -> None:
        """WINDOW_UPDATE of a stream. Raises StreamFault."""
        stream.send_window += increment
        if stream.send_window > MAX_WINDOW:
            raise StreamFault(
                stream.id, ErrorCode.FLOW_CONTROL_ERROR, "the stream's window overflows"
            )
        if stream.backlog:
            self._take_turn(stream)

    def set_initial_window(self, size: int, streams: Iterable[OutgoingStream]) -> None:
        """SETTINGS_INITIAL_WINDOW_SIZE: moves the open streams too. Raises ConnectionFault."""
        moved, self.initial_window = size - self.initial_window, size
        for stream in streams:
            stream.send_window += moved
            if stream.send_window > MAX_WINDOW:
                raise ConnectionFault(ErrorCode.FLOW_CONTROL_ERROR, "a stream's window overflows")
            if stream.backlog:
                self._take_turn(stream)

    def pause(self) -> None:
        """The socket is full."""
        self._paused = True

    def resume(self) -> None:
        self._paused = False
        self.flush()

    # the writing

    def flush(self) -> None:
        """Write what may leave now."""
        self._due = False
        while not self._paused and self.transport is not None:
            if self._turns:
                self._fill()  # may end the last stream, and with it the connection: see `close`
            if not self._out or self.transport is None:
                return
            self._write(self.transport)

    def close(self) -> None:
        """Write what no window holds back, full socket or not, and nothing after that."""
        if self.transport is not None and self._out:
            self._write(self.transport)
        self.transport = None

    def _write(self, transport: asyncio.Transport) -> None:
        out, self._out = self._out, []
        if self._counted:
            self.account.release(self._unread)
            self._counted = self._unread = 0
        transport.write(b"".join(out))

    def _schedule(self) -> None:
        if not self._due and not self.corked:
            self._due = True
            self._loop.call_soon(self.flush)

    def _take_turn(self, stream: OutgoingStream) -> None:
        if not stream._turn and stream.send_window > 0:
            stream._turn = True
            self._turns.append(stream)
            self._schedule()

    def _fill(self) -> None:
        """One frame per stream and round, for as much as one write carries."""
        left = WRITE_BYTES
        while self._turns and self.window > 0 and left > 0:
            stream = self._turns.popleft()
            stream._turn = False
            if stream.backlog and stream.send_window > 0:
                left -= self._send_frame(stream)
            if stream.backlog:
                self._take_turn(stream)

    def _send_frame(self, stream: OutgoingStream) -> int:
        """One DATA frame, and the trailers if it is the last; its bytes."""
        size = min(self.window, stream.send_window, self.max_frame, WRITE_BYTES, stream.backlog)
        self._out.append(HEAD.pack(size >> 16, size & 0xFFFF, DATA, 0, stream.id))
        self._out += _cut(stream, size)
        self.window -= size
        stream.send_window -= size
        stream.backlog -= size
        stream.sent += size
        self._sent += size
        self.carried += 1
        left = stream._charged - stream.backlog
        if left > WRITE_BYTES or not stream.backlog:
            self._give_back(stream, left)
        if stream.backlog <= ROOM_BYTES:
            stream._wake()
        if not stream.backlog and stream._trailers is not None:
            self._finish(stream, stream._trailers)
        return size

    def _give_back(self, stream: OutgoingStream, size: int) -> None:
        stream._charged -= size
        self.account.release(size)

    def _finish(self, stream: OutgoingStream, trailers: bytes) -> None:
        self.control(_header_frame(stream, _LAST, trailers))
        self._end(stream)

    def _end(self, stream: OutgoingStream) -> None:
        stream.ended = True
        self.on_end(stream)


def _header_frame(stream: OutgoingStream, flags: int, block: bytes) -> bytes:
    return HEAD.pack(len(block) >> 16, len(block) & 0xFFFF, HEADERS, flags, stream.id) + block


def _cut(stream: OutgoingStream, size: int) -> list[Buffer]:
    """The first `size` bytes that wait."""
    waits = stream._waits
    assert waits is not None
    pieces: list[Buffer] = []
    while size:
        piece = waits.popleft()
        if len(piece) > size:
            view = memoryview(piece)
            waits.appendleft(view[size:])
            piece = view[:size]
        pieces.append(piece)
        size -= len(piece)
    return pieces

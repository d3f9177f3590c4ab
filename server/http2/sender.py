"""The outgoing half of a connection: frames leave within the peer's windows, streams in turn.

`server.http2.connection` and the streams write here; one `transport.write` per turn of the loop
carries what they wrote. DATA that does not fit the windows, or a socket that is full, waits in its
stream (`Outgoing`); all other frames leave with the next write.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterable

from server.http2.frames import (
    DATA,
    DEFAULT_FRAME_BYTES,
    DEFAULT_WINDOW,
    END_HEADERS,
    END_STREAM,
    HEAD,
    HEADERS,
    MAX_WINDOW,
    Code,
    ConnectionFault,
    StreamFault,
)

Buffer = bytes | memoryview

WRITE_BYTES = 256 * 1024
"""DATA handed to the transport at once, and the most it should hold before it says stop."""
ROOM_BYTES = 64 * 1024
"""A stream with less than this waiting may write on."""
OVERRUN = 20_000
"""Pieces that may wait for a peer that makes us answer and does not read."""
_LAST = END_HEADERS | END_STREAM


class Outgoing:
    """The sending half of one stream: its window, and what waits for it.

    `backlog`: bytes that wait. `ended`: END_STREAM or a reset went out, or a reset came in;
    nothing more can leave.
    """

    __slots__ = ("_room", "_trailers", "_turn", "_waits", "backlog", "ended", "id", "send_window")

    def __init__(self, stream_id: int, send_window: int) -> None:
        self.id = stream_id
        self.send_window = send_window
        self.backlog = 0
        self.ended = False
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

    on_end: Callable[[Outgoing], None]

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.window = DEFAULT_WINDOW
        self.initial_window = DEFAULT_WINDOW
        self.max_frame = DEFAULT_FRAME_BYTES
        self.corked = False
        self.transport: asyncio.Transport | None = None
        self._loop = loop
        self._paused = False
        self._out: list[Buffer] = []
        self._due = False
        self._turns: deque[Outgoing] = deque()

    @property
    def overrun(self) -> bool:
        """The peer has us write more and more and reads none of it."""
        return self._paused and len(self._out) > OVERRUN

    # what streams and connection write

    def control(self, *pieces: Buffer) -> None:
        """Whole frames that no window holds back."""
        self._out += pieces
        self._schedule()

    def headers(self, stream: Outgoing, block: bytes) -> None:
        """The head of a response, which DATA and trailers follow."""
        self.control(_header_frame(stream, END_HEADERS, block))

    def answer(
        self, stream: Outgoing, block: bytes, prefix: bytes, message: bytes, trailers: bytes
    ) -> None:
        """A whole response; at once where windows and socket allow, which is nearly always."""
        size = len(prefix) + len(message)
        if self._paused or size > min(self.window, stream.send_window, self.max_frame):
            self.headers(stream, block)
            self.data(stream, prefix, message)
            self.finish(stream, trailers)
            return
        self.window -= size
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

    def data(self, stream: Outgoing, *pieces: bytes) -> None:
        """Bytes that leave in order, as windows and socket allow."""
        if stream.ended:
            return
        if stream._waits is None:
            stream._waits = deque()
        stream._waits.extend(pieces)
        stream.backlog += sum(map(len, pieces))
        self._take_turn(stream)

    def finish(self, stream: Outgoing, trailers: bytes) -> None:
        """The last header block of a stream, behind what waits."""
        if stream.ended:
            return
        if stream.backlog:
            stream._trailers = trailers
            return
        self._finish(stream, trailers)

    def drop(self, stream: Outgoing) -> None:
        """Nothing more leaves on this stream."""
        stream.ended = True
        stream.backlog = 0
        stream._waits = None
        stream._wake()

    # what the peer allows

    def widen(self, increment: int) -> None:
        """WINDOW_UPDATE of the connection. Raises ConnectionFault."""
        self.window += increment
        if self.window > MAX_WINDOW:
            raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "the connection's window overflows")
        if self._turns:
            self._schedule()

    def widen_stream(self, stream: Outgoing, increment: int) -> None:
        """WINDOW_UPDATE of a stream. Raises StreamFault."""
        stream.send_window += increment
        if stream.send_window > MAX_WINDOW:
            raise StreamFault(stream.id, Code.FLOW_CONTROL_ERROR, "the stream's window overflows")
        if stream.backlog:
            self._take_turn(stream)

    def set_initial_window(self, size: int, streams: Iterable[Outgoing]) -> None:
        """SETTINGS_INITIAL_WINDOW_SIZE: moves the open streams too. Raises ConnectionFault."""
        moved, self.initial_window = size - self.initial_window, size
        for stream in streams:
            stream.send_window += moved
            if stream.send_window > MAX_WINDOW:
                raise ConnectionFault(Code.FLOW_CONTROL_ERROR, "a stream's window overflows")
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
        transport = self.transport
        while not self._paused and transport is not None:
            if self._turns:
                self._fill()
            if not self._out:
                return
            out, self._out = self._out, []
            transport.write(b"".join(out))

    def close(self) -> None:
        """Write what no window holds back, full socket or not, and nothing after that."""
        if self.transport is not None and self._out:
            self.transport.write(b"".join(self._out))
        self.transport = None

    def _schedule(self) -> None:
        if not self._due and not self.corked:
            self._due = True
            self._loop.call_soon(self.flush)

    def _take_turn(self, stream: Outgoing) -> None:
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

    def _send_frame(self, stream: Outgoing) -> int:
        """One DATA frame, and the trailers if it is the last; its bytes."""
        size = min(self.window, stream.send_window, self.max_frame, WRITE_BYTES, stream.backlog)
        self._out.append(HEAD.pack(size >> 16, size & 0xFFFF, DATA, 0, stream.id))
        self._out += _cut(stream, size)
        self.window -= size
        stream.send_window -= size
        stream.backlog -= size
        if stream.backlog <= ROOM_BYTES:
            stream._wake()
        if not stream.backlog and stream._trailers is not None:
            self._finish(stream, stream._trailers)
        return size

    def _finish(self, stream: Outgoing, trailers: bytes) -> None:
        self.control(_header_frame(stream, _LAST, trailers))
        self._end(stream)

    def _end(self, stream: Outgoing) -> None:
        stream.ended = True
        self.on_end(stream)


def _header_frame(stream: Outgoing, flags: int, block: bytes) -> bytes:
    return HEAD.pack(len(block) >> 16, len(block) & 0xFFFF, HEADERS, flags, stream.id) + block


def _cut(stream: Outgoing, size: int) -> list[Buffer]:
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

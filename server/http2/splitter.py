"""Cut the bytes of a connection into frames. Pure.

`server.http2.connection` feeds it what the socket brings. Bytes of an unfinished frame are kept
apart until it is whole, so that slow senders cost no copying.
"""

from collections.abc import Iterator

from server.http2.frames import HEAD, HEAD_BYTES, PREFACE, Code, ConnectionFault

MAX_FRAME_BYTES = 128 * 1024
"""Largest frame taken: large tensors come in few frames, and a peer makes us hold no more."""

Frame = tuple[int, int, int, bytes]
"""Kind, flags, stream id, payload; unnamed because there are two or three to a request."""

_NO_PREFACE = "this port speaks gRPC, over HTTP/2 with prior knowledge"
_ID_MASK = 0x7FFFFFFF
_unpack = HEAD.unpack_from


class Splitter:
    """One direction of one connection; keeps at most one frame and what came with it."""

    def __init__(self) -> None:
        self._chunks: list[bytes] = []
        self._size = 0
        self._wanted = len(PREFACE)
        self.greeted = False

    def feed(self, data: bytes) -> Iterator[Frame]:
        """The frames that `data` completes. Raises ConnectionFault; feed nothing after that."""
        if self._chunks:
            self._chunks.append(data)
            self._size += len(data)
            if self._size < self._wanted and self.greeted:
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
            raise ConnectionFault(Code.FRAME_SIZE_ERROR, text)
        self._keep(rest, HEAD_BYTES + length)

    def _keep(self, rest: bytes, wanted: int) -> None:
        self._size, self._wanted = len(rest), wanted
        if rest:
            self._chunks.append(rest)

    def _greets(self, data: bytes) -> bool:
        """Whether the whole preface is there. Raises ConnectionFault where it cannot become one."""
        if not data.startswith(PREFACE[: len(data)]):
            raise ConnectionFault(Code.PROTOCOL_ERROR, _NO_PREFACE)
        self.greeted = len(data) >= len(PREFACE)
        return self.greeted

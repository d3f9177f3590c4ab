"""Cut a request's body into gRPC messages: five bytes of prefix, then the message. Pure."""

import zlib
from collections.abc import Callable

from server.http2.calls.status import CallFailed
from server.http2.stall_detector import PeerWait

PREFIX_BYTES = 5
INFLATED_BYTES = 64 * 2**20
"""Of a compressed message once it is opened: 1 KiB on the wire opens to 1 MiB, and the limit on
messages is that of 2 GiB of plain ones."""
OVERHEAD_BYTES = 128
"""The price of a message beside its bytes: an empty one takes five on the wire."""
_SMALL_BYTES, _COALESCED_BYTES = 2048, 64 * 1024
"""Pieces up to the first are copied together up to the second: kept apart, two bytes take fifty."""
BRIEF_BYTES = 64 * 1024
"""Up to this much is opened on the loop: less than a millisecond."""

Message = tuple[int, bytes]
"""Whether it is compressed (0 or 1), and its bytes; `Assembler.plain` opens it."""

_WINDOW_BITS = {"gzip": 31, "deflate": 15}


class Assembler:
    """The messages of one request, however they are cut into DATA frames.

    No message is larger than `limit` bytes, compressed or not; no compressed one opens to more
    than INFLATED_BYTES. `reserve(size)` is called when a message's prefix is there, before any of
    it is kept, and may raise CallFailed.
    """

    __slots__ = (
        "_chunks",
        "_count",
        "_encoding",
        "_flag",
        "_limit",
        "_needed_bytes",
        "_reserve",
        "_size",
    )  # fmt: skip

    def __init__(
        self, limit: int, encoding: str, reserve: Callable[[int], None] = lambda size: None
    ) -> None:
        self._limit = limit
        self._encoding = encoding
        self._reserve = reserve
        self._count = 0
        self._chunks: list[bytes | bytearray] = []
        self._size = 0
        self._flag: int | None = None
        self._needed_bytes = PREFIX_BYTES

    @property
    def count(self) -> int:
        """Messages begun."""
        return self._count

    @property
    def inside(self) -> bool:
        """Whether a message has begun and is not complete."""
        return bool(self._chunks) or self._flag is not None

    def feed(self, data: bytes) -> list[Message]:
        """The messages `data` completes. Raises CallFailed; feed nothing after that."""
        self._size += len(data)
        if self._size < self._needed_bytes:
            self._keep(data)
            return []
        if self._chunks:
            data = b"".join((*self._chunks, data))
            self._chunks = []
        messages = []
        position = 0
        while len(data) - position >= self._needed_bytes:
            start, position = position, position + self._needed_bytes
            if self._flag is None:
                self._read_prefix(data[start:position])
            else:
                messages.append((self._flag, data[start:position]))
                self._flag, self._needed_bytes = None, PREFIX_BYTES
        rest = data[position:]
        self._chunks, self._size = [rest] if rest else [], len(rest)
        return messages

    def awaits(self) -> PeerWait:
        """What is missing of the message it is inside of."""
        return PeerWait(
            f"message {self._count}",
            self._needed_bytes,
            self._needed_bytes - self._size,
            self._size,
        )

    def _keep(self, data: bytes) -> None:
        last = self._chunks[-1] if self._chunks else None
        if len(data) > _SMALL_BYTES:
            self._chunks.append(data)
        elif isinstance(last, bytearray) and len(last) < _COALESCED_BYTES:
            last += data
        else:
            self._chunks.append(bytearray(data))

    def _read_prefix(self, prefix: bytes) -> None:
        self._flag, self._needed_bytes = prefix[0], int.from_bytes(prefix[1:], "big")
        if self._flag > 1:
            raise CallFailed("INTERNAL", f"a message whose first byte is {self._flag}, not 0 or 1")
        if self._needed_bytes > self._limit:
            text = f"Received message larger than max ({self._needed_bytes} vs. {self._limit})"
            raise CallFailed("RESOURCE_EXHAUSTED", text)
        self._reserve(self._needed_bytes + OVERHEAD_BYTES)
        self._count += 1

    def brief(self, message: Message) -> bytes | None:
        """As `plain`, or None where that takes long enough to be done off the loop."""
        compressed, data = message
        if not compressed:
            return data
        if len(data) > BRIEF_BYTES:
            return None
        return self._inflated(data, min(self._limit, BRIEF_BYTES))

    def plain(self, message: Message) -> bytes:
        """The message without its compression. Raises CallFailed. Any thread may call it."""
        compressed, data = message
        if not compressed:
            return data
        most = min(self._limit, INFLATED_BYTES)
        plain = self._inflated(data, most)
        if plain is None:
            remedy = "; send it without compression" if most < self._limit else ""
            text = f"Received message larger than max (over {most} vs. {most} decompressed){remedy}"
            raise CallFailed("RESOURCE_EXHAUSTED", text)
        return plain

    def _inflated(self, data: bytes, most: int) -> bytes | None:
        """What is in `data`; None where that is more than `most` bytes."""
        bits = _WINDOW_BITS.get(self._encoding)
        if bits is None:
            raise CallFailed("INTERNAL", "a compressed message in a call without grpc-encoding")
        inflater = zlib.decompressobj(bits)
        try:
            plain = inflater.decompress(data, most + 1)
        except zlib.error as error:
            text = f"a message that is no {self._encoding}: {error}"
            raise CallFailed("INTERNAL", text) from error
        if len(plain) > most:
            return None
        if not inflater.eof:
            raise CallFailed("INTERNAL", f"a message whose {self._encoding} is cut short")
        return plain

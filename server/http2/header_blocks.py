"""Header blocks: put together from their frames, decoded, and known again.

Clients repeat themselves: from the second request on a header block is a dozen bytes that refer to
the table. While the table does not change, the same bytes mean the same request head.
"""

from collections.abc import Callable
from typing import NamedTuple

from server.http2.stream import StreamHead, StreamService
from server.http2.wire.frames import END_HEADERS, ConnectionFault, ErrorCode
from server.http2.wire.hpack import LIST_BYTES, HeaderListTooLarge, HpackDecoder, HpackError

MAX_BYTES = 2 * LIST_BYTES
"""Of one block as it travels, over all its frames."""
MAX_FRAMES = 32
_KNOWN, _KNOWN_BYTES = 64, 128 * 1024
"""Heads remembered, and the bytes of their header lists."""
_FREE_BYTES = 2048
"""Of a header list, that are free of charge."""
_FIELD_BYTES = 32
"""What a field counts beside its name and value (RFC 7541, section 4.1)."""


class HeaderBlock(NamedTuple):
    """A whole block: the stream and the flags of its HEADERS frame, and its bytes."""

    stream_id: int
    flags: int
    data: bytes


class HeaderBlocks:
    """The header blocks of one connection, in the order they came."""

    def __init__(self, service: StreamService, spend: Callable[[int], None]) -> None:
        """`spend(size)` prices a header list larger than is usual; may raise ConnectionFault."""
        self._service = service
        self._spend = spend
        self._decoder = HpackDecoder()
        self._heads: dict[bytes, StreamHead] = {}
        self._heads_bytes = 0
        self._begun = HeaderBlock(0, 0, b"")
        self._parts: list[bytes] = []

    def begin(self, stream_id: int, flags: int, part: bytes) -> None:
        """A HEADERS frame without END_HEADERS."""
        self._begun = HeaderBlock(stream_id, flags, b"")
        self._parts = [part]

    def go_on(self, stream_id: int, flags: int, part: bytes) -> HeaderBlock | None:
        """A CONTINUATION frame: the block if it is whole now. Raises ConnectionFault."""
        if stream_id != self._begun.stream_id:
            raise ConnectionFault(ErrorCode.PROTOCOL_ERROR, "CONTINUATION of another stream")
        self._parts.append(part)
        size = sum(map(len, self._parts))
        if size > MAX_BYTES or len(self._parts) > MAX_FRAMES:
            text = f"a header block of {size} bytes in {len(self._parts)} frames without an end"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, text)
        if not flags & END_HEADERS:
            return None
        parts, self._parts = self._parts, []
        return self._begun._replace(data=b"".join(parts))

    def read(self, data: bytes) -> StreamHead:
        """What the block asks for. Raises ConnectionFault; Malformed where it is no request."""
        return self._heads.get(data) or self._read(data)

    def _read(self, data: bytes) -> StreamHead:
        if len(data) > MAX_BYTES:
            raise ConnectionFault(
                ErrorCode.ENHANCE_YOUR_CALM, f"a header block of {len(data)} bytes"
            )
        changes = self._decoder.changes
        try:
            headers = self._decoder.decode(data)
        except HpackError as error:
            raise ConnectionFault(ErrorCode.COMPRESSION_ERROR, str(error)) from error
        except HeaderListTooLarge:
            self._spend(max(LIST_BYTES, len(data)))
            return self._service.oversized()
        finally:
            changed = self._decoder.changes != changes
            if changed or len(self._heads) >= _KNOWN:
                self._forget()
        size = sum(len(name) + len(value) + _FIELD_BYTES for name, value in headers)
        if size > _FREE_BYTES:
            self._spend(size - _FREE_BYTES)
        head = self._service.read(headers)
        if not changed:
            self._remember(data, head, size)
        return head

    def _remember(self, data: bytes, head: StreamHead, size: int) -> None:
        if self._heads_bytes + size > _KNOWN_BYTES:
            self._forget()
        self._heads[data] = head
        self._heads_bytes += size

    def _forget(self) -> None:
        self._heads.clear()
        self._heads_bytes = 0

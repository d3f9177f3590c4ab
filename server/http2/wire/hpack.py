"""HPACK (RFC 7541): header blocks of the peer, read; ours are written without a table. Pure.

`server.http2.connection` decodes every block here, in order, because each may change the table the
next one refers to. What we send is literal (`literal`), so that our side has no state at all.
"""

from collections import deque

from server.http2.wire import huffman

Headers = tuple[tuple[bytes, bytes], ...]
"""Names and values in the order they came."""

TABLE_BYTES = 4096
LIST_BYTES = 16 * 1024
"""Largest header list taken; each field counts 32 bytes beside its name and value."""

_FIELD_OVERHEAD = 32
_MAX_INTEGER = 1 << 28

_STATIC: Headers = (
    (b":authority", b""),
    (b":method", b"GET"),
    (b":method", b"POST"),
    (b":path", b"/"),
    (b":path", b"/index.html"),
    (b":scheme", b"http"),
    (b":scheme", b"https"),
    *((b":status", status) for status in b"200 204 206 304 400 404 500".split()),
    (b"accept-charset", b""),
    (b"accept-encoding", b"gzip, deflate"),
    *(
        (name, b"")
        for name in (
            b"accept-language accept-ranges accept access-control-allow-origin age allow "
            b"authorization cache-control content-disposition content-encoding content-language "
            b"content-length content-location content-range content-type cookie date etag expect "
            b"expires from host if-match if-modified-since if-none-match if-range "
            b"if-unmodified-since last-modified link location max-forwards proxy-authenticate "
            b"proxy-authorization range referer refresh retry-after server set-cookie "
            b"strict-transport-security transfer-encoding user-agent vary via www-authenticate"
        ).split()
    ),
)


class HpackError(Exception):
    """A block that cannot be decoded; the table is unknown from here on."""


class HeaderListTooLarge(Exception):
    """A block over LIST_BYTES. It was decoded to its end, so the connection can go on."""


class HpackDecoder:
    """The decoding side of one connection.

    `changes` counts what happened to the table: a block decoded before means the same now if the
    count is the same.
    """

    def __init__(self) -> None:
        self._dynamic: deque[tuple[bytes, bytes]] = deque()
        self._size = 0
        self._max_size = TABLE_BYTES
        self.changes = 0

    def decode(self, block: bytes) -> Headers:
        """The fields of one whole block. Raises HpackError, HeaderListTooLarge."""
        fields: list[tuple[bytes, bytes]] = []
        size, position = 0, self._read_resizes(block)
        while position < len(block):
            field, position = self._read_field(block, position)
            size += len(field[0]) + len(field[1]) + _FIELD_OVERHEAD
            if size <= LIST_BYTES:
                fields.append(field)
        if size > LIST_BYTES:
            raise HeaderListTooLarge
        return tuple(fields)

    def _read_resizes(self, block: bytes) -> int:
        """Table sizes may only change in front of the first field; the position of that field."""
        position = 0
        while position < len(block) and block[position] >> 5 == 1:
            size, position = _integer(block, position, 5)
            if size > TABLE_BYTES:
                raise HpackError(f"table size {size} over the {TABLE_BYTES} offered")
            self._max_size = size
            self.changes += 1
            self._evict()
        return position

    def _read_field(self, block: bytes, position: int) -> tuple[tuple[bytes, bytes], int]:
        first = block[position]
        if first >= 0x80:
            index, position = _integer(block, position, 7)
            return self._at(index), position
        if first >> 5 == 1:
            raise HpackError("table size changed behind a field")
        keep = first >= 0x40
        index, position = _integer(block, position, 6 if keep else 4)
        if index:
            name = self._at(index)[0]
        else:
            name, position = _string(block, position)
        value, position = _string(block, position)
        if keep:
            self._insert((name, value))
        return (name, value), position

    def _at(self, index: int) -> tuple[bytes, bytes]:
        if 0 < index <= len(_STATIC):
            return _STATIC[index - 1]
        place = index - len(_STATIC) - 1
        if 0 <= place < len(self._dynamic):
            return self._dynamic[place]
        raise HpackError(f"index {index} of no field")

    def _insert(self, field: tuple[bytes, bytes]) -> None:
        self.changes += 1
        self._dynamic.appendleft(field)
        self._size += len(field[0]) + len(field[1]) + _FIELD_OVERHEAD
        self._evict()

    def _evict(self) -> None:
        while self._size > self._max_size:
            name, value = self._dynamic.pop()
            self._size -= len(name) + len(value) + _FIELD_OVERHEAD


def _integer(block: bytes, position: int, prefix_bits: int) -> tuple[int, int]:
    """The integer at `position`, and the position behind it."""
    mask = (1 << prefix_bits) - 1
    value = block[position] & mask
    position += 1
    if value < mask:
        return value, position
    shift = 0
    while True:
        if position >= len(block):
            raise HpackError("a block that ends inside an integer")
        octet = block[position]
        position += 1
        value += (octet & 127) << shift
        shift += 7
        if value > _MAX_INTEGER or shift > 35:
            raise HpackError("an integer too large")
        if octet < 128:
            return value, position


def _string(block: bytes, position: int) -> tuple[bytes, int]:
    """The string at `position`, and the position behind it."""
    if position >= len(block):
        raise HpackError("a block that ends before a string")
    coded = block[position] & 0x80
    length, position = _integer(block, position, 7)
    end = position + length
    if end > len(block):
        raise HpackError("a block that ends inside a string")
    data = block[position:end]
    if not coded:
        return data, end
    try:
        return huffman.decode(data), end
    except huffman.HuffmanError as error:
        raise HpackError(str(error)) from error


def literal(fields: Headers) -> bytes:
    """A block that says `fields` without table or Huffman code, so that it is always the same."""
    return b"".join(
        b"\x00" + _counted(len(name), 0x7F) + name + _counted(len(value), 0x7F) + value
        for name, value in fields
    )


def _counted(value: int, mask: int) -> bytes:
    if value < mask:
        return bytes((value,))
    written = bytearray((mask,))
    value -= mask
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    written.append(value)
    return bytes(written)

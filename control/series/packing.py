"""Windows and chunks as bytes for the database: msgpack, compressed. Pure."""

import zlib
from collections.abc import Sequence

import msgspec

from control.series.points import SeriesPoint, SubjectPoint

_LEVEL = 1
"""Of zlib: half the size of what the default takes three times as long for."""


class ChunkPoint(msgspec.Struct, frozen=True, array_like=True):
    """A point of a chunk, `number` levels behind its start."""

    number: int
    point: SeriesPoint


_encoder = msgspec.msgpack.Encoder()
_rows = msgspec.msgpack.Decoder(tuple[SubjectPoint, ...])
_chunk = msgspec.msgpack.Decoder(tuple[ChunkPoint, ...])


def pack_rows(rows: Sequence[SubjectPoint]) -> bytes:
    return zlib.compress(_encoder.encode(rows), _LEVEL)


def unpack_rows(payload: bytes) -> tuple[SubjectPoint, ...]:
    return _rows.decode(zlib.decompress(payload))


def pack_chunk(points: Sequence[ChunkPoint]) -> bytes:
    return zlib.compress(_encoder.encode(points), _LEVEL)


def unpack_chunk(payload: bytes) -> tuple[ChunkPoint, ...]:
    return _chunk.decode(zlib.decompress(payload))

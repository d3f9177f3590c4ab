"""Windows and chunks as bytes for the database: msgpack, compressed. Pure."""

import zlib
from collections.abc import Sequence

import msgspec

from control.series.points import SeriesPoint, SeriesSubject, SubjectPoint

_LEVEL = 1
"""Of zlib: half the size of what the default takes three times as long for."""


class ChunkPoint(msgspec.Struct, frozen=True, array_like=True):
    """A point of a chunk, `number` levels behind its start."""

    number: int
    point: SeriesPoint


class PackedSubjectPoint(msgspec.Struct, frozen=True, array_like=True):
    """A SubjectPoint whose point is still packed."""

    subject: SeriesSubject
    point: msgspec.Raw

    def unpacked(self) -> SeriesPoint:
        return _point.decode(self.point)


_encoder = msgspec.msgpack.Encoder()
_rows = msgspec.msgpack.Decoder(tuple[SubjectPoint, ...])
_packed_rows = msgspec.msgpack.Decoder(tuple[PackedSubjectPoint, ...])
_point = msgspec.msgpack.Decoder(SeriesPoint)
_chunk = msgspec.msgpack.Decoder(tuple[ChunkPoint, ...])


def pack_rows(rows: Sequence[SubjectPoint]) -> bytes:
    return zlib.compress(_encoder.encode(rows), _LEVEL)


def unpack_rows(payload: bytes) -> tuple[SubjectPoint, ...]:
    return _rows.decode(zlib.decompress(payload))


def unpack_subjects(payload: bytes) -> tuple[PackedSubjectPoint, ...]:
    """The rows for who wants few of them: a window has one for each version of a server, and a
    chart asks for six."""
    return _packed_rows.decode(zlib.decompress(payload))


def pack_chunk(points: Sequence[ChunkPoint]) -> bytes:
    return zlib.compress(_encoder.encode(points), _LEVEL)


def unpack_chunk(payload: bytes) -> tuple[ChunkPoint, ...]:
    return _chunk.decode(zlib.decompress(payload))

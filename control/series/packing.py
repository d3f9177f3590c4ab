"""Windows and chunks as bytes for the database: msgpack, compressed. Pure.

A window has a row for each version of a server, in blocks by subject: who wants one model's rows
of an hour of windows unpacks one block of each.
"""

import zlib
from collections.abc import Iterator, Sequence

import msgspec

from control.series.points import SeriesPoint, SubjectPoint

_LEVEL, _SEALED_LEVEL = 1, 6
"""Of zlib: of what is kept for hours, and of what is kept for days."""


class ChunkPoint(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """A point of a chunk, `number` levels behind its start."""

    number: int
    point: SeriesPoint


_BLOCK = 64
"""Rows of a window that are compressed together."""


class _Block(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """`first` and `last`: keys of the subjects whose `rows` are in it."""

    first: str
    last: str
    rows: bytes


_encoder = msgspec.msgpack.Encoder()
_rows = msgspec.msgpack.Decoder(tuple[SubjectPoint, ...])
_blocks = msgspec.msgpack.Decoder(tuple[_Block, ...])
_chunk = msgspec.msgpack.Decoder(tuple[ChunkPoint, ...])
_columns = msgspec.msgpack.Decoder(
    msgspec.defstruct(
        "_Columns",
        [
            ("numbers", list[int]),
            *(
                (one.name, list[one.type], msgspec.field(default_factory=list))  # type: ignore[name-defined]
                for one in msgspec.structs.fields(SeriesPoint)
            ),
        ],
        array_like=True,
    )
)

_BY_COLUMNS = b"c"
"""What a chunk begins with; one of an earlier build begins as zlib does, and has rows."""

_ZLIB = 0x78
"""What a window of an earlier build begins with: all its rows, compressed as one."""


def pack_rows(rows: Sequence[SubjectPoint]) -> bytes:
    ordered = sorted(rows, key=lambda one: one.subject.key)
    blocks = [ordered[start : start + _BLOCK] for start in range(0, len(ordered), _BLOCK)]
    return _encoder.encode(
        [
            _Block(
                some[0].subject.key,
                some[-1].subject.key,
                zlib.compress(_encoder.encode(some), _LEVEL),
            )
            for some in blocks
        ]
    )


def unpack_rows(payload: bytes, prefixes: Sequence[str] = ("",)) -> Iterator[SubjectPoint]:
    """All rows of those blocks in which a subject's key may begin with one of `prefixes`."""
    if payload[:1] == bytes([_ZLIB]):
        yield from _rows.decode(zlib.decompress(payload))
        return
    for block in _blocks.decode(payload):
        if any(block.first[: len(one)] <= one <= block.last for one in prefixes):
            yield from _rows.decode(zlib.decompress(block.rows))


def pack_chunk(points: Sequence[ChunkPoint]) -> bytes:
    """By columns: what changes little from minute to minute takes a seventh less room so."""
    columns = (
        [one.number for one in points],
        *([getattr(one.point, name) for one in points] for name in SeriesPoint.__struct_fields__),
    )
    return _BY_COLUMNS + zlib.compress(_encoder.encode(columns), _SEALED_LEVEL)


def unpack_chunk(payload: bytes) -> tuple[ChunkPoint, ...]:
    if payload[:1] != _BY_COLUMNS:
        return _chunk.decode(zlib.decompress(payload))
    numbers, *columns = msgspec.structs.astuple(_columns.decode(zlib.decompress(payload[1:])))
    known = [column for column in columns if column]  # an earlier build had fewer
    rows = zip(*known, strict=True)
    return tuple(
        ChunkPoint(number, SeriesPoint(*row)) for number, row in zip(numbers, rows, strict=True)
    )

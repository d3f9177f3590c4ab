"""Windows as bytes, and the few rows of one that a chart asks for."""

import random
import zlib

import msgspec
import pytest

from control.series.packing import ChunkPoint, pack_chunk, pack_rows, unpack_chunk, unpack_rows
from control.series.points import LanguagePoint, SeriesPoint, SeriesSubject, SubjectPoint
from control.series.selection import SeriesSelection

ROWS = (
    SubjectPoint(SeriesSubject("arm", "r", 0, "stable"), SeriesPoint()),
    SubjectPoint(SeriesSubject("server"), SeriesPoint(memory_bytes=1 << 40, loop_lag_us=7)),
    SubjectPoint(
        SeriesSubject("version", "m", 3),
        SeriesPoint(5, {"OTHER": 2}, (0, 3, 4, 2), language=LanguagePoint(generated_tokens=9)),
    ),
)
NAMES = ("a", "a-b", "ab", "m", "m0", "m1", "m10", "z", "é")
MANY = tuple(
    SubjectPoint(SeriesSubject("version", name, version), SeriesPoint(version))
    for name in NAMES
    for version in range(1, 60)
)


def test_rows_are_unpacked_as_they_were() -> None:
    assert tuple(unpack_rows(pack_rows(ROWS))) == ROWS


def test_rows_of_an_earlier_build_are_unpacked() -> None:
    assert tuple(unpack_rows(zlib.compress(msgspec.msgpack.encode(ROWS)))) == ROWS


@pytest.mark.parametrize("name", NAMES)
def test_a_model_among_hundreds_has_all_its_rows_and_few_others_are_unpacked(name: str) -> None:
    shuffled = [*MANY, *ROWS]
    random.Random(7).shuffle(shuffled)
    selection = SeriesSelection("version", name)
    found = [*unpack_rows(pack_rows(shuffled), selection.prefixes)]
    mine = {row.subject for row in found if selection.name_of(row.subject)}
    assert mine >= {row.subject for row in MANY if row.subject.name == name}
    assert ROWS[1] in found, "the server's row says that there was one"
    assert len(found) < len(shuffled) / 2


def test_no_rows_are_none() -> None:
    assert [*unpack_rows(pack_rows(()))] == []


CHUNK = tuple(ChunkPoint(number, row.point) for number, row in enumerate(ROWS, 7))


def test_a_chunk_is_unpacked_as_it_was_and_one_of_an_earlier_build_too() -> None:
    assert unpack_chunk(pack_chunk(CHUNK)) == CHUNK
    assert unpack_chunk(zlib.compress(msgspec.msgpack.encode(CHUNK))) == CHUNK
    assert unpack_chunk(pack_chunk(())) == ()


def test_a_chunk_of_a_build_whose_points_had_fewer_figures_is_unpacked() -> None:
    columns = [[3, 4], [5, 6], [{}, {"OTHER": 1}], [(0, 5), (2, 6)]]
    payload = b"c" + zlib.compress(msgspec.msgpack.encode(columns))
    assert unpack_chunk(payload) == (
        ChunkPoint(3, SeriesPoint(5, {}, (0, 5))),
        ChunkPoint(4, SeriesPoint(6, {"OTHER": 1}, (2, 6))),
    )

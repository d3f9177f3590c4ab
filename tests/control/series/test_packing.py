"""Windows as bytes, and the few rows of one that a chart asks for."""

from control.series.packing import pack_rows, unpack_rows, unpack_subjects
from control.series.points import LanguagePoint, SeriesPoint, SeriesSubject, SubjectPoint

ROWS = (
    SubjectPoint(SeriesSubject("server"), SeriesPoint(memory_bytes=1 << 40, loop_lag_us=7)),
    SubjectPoint(
        SeriesSubject("version", "m", 3),
        SeriesPoint(5, {"OTHER": 2}, (0, 3, 4, 2), language=LanguagePoint(generated_tokens=9)),
    ),
    SubjectPoint(SeriesSubject("arm", "r", 0, "stable"), SeriesPoint()),
)


def test_rows_unpacked_one_by_one_are_those_that_are_unpacked_together() -> None:
    payload = pack_rows(ROWS)
    assert unpack_rows(payload) == ROWS
    one_by_one = [SubjectPoint(row.subject, row.unpacked()) for row in unpack_subjects(payload)]
    assert tuple(one_by_one) == ROWS

"""The one point of a range has all of it but for a little at its end."""

import pytest

from control.series.levels import DAY_S, HOUR_S
from control.series.reading import range_of, steps_of_one_point

MOST = 1_000
NOW = 20_000 * DAY_S + 13 * HOUR_S + 1_799


@pytest.mark.parametrize(
    ("span_s", "left_out_s"),
    [
        (900, 60),
        (HOUR_S, 60),
        (6 * HOUR_S, 60),
        (DAY_S, 120),
        (7 * DAY_S, 900),
        (60 * DAY_S, 5_400),
    ],
)
def test_the_end_that_is_left_out_is_short_beside_the_range(span_s: int, left_out_s: int) -> None:
    within = range_of(NOW - span_s, NOW, NOW, steps_of_one_point(span_s, MOST))
    assert within.since <= NOW - span_s
    assert 0 <= NOW - within.until < left_out_s
    assert len(within.starts) <= MOST + 1

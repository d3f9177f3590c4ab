"""The level that answers has everything since then, and few enough points."""

import pytest

from control.series.levels import (
    DAY_S,
    HOUR_S,
    LATE_S,
    MINUTES,
    QUARTERS,
    WINDOWS,
    SeriesLevel,
    level_for,
    sealable,
    step_for,
)

NOW = 20_000 * DAY_S + 1234


@pytest.mark.parametrize(
    ("ago_s", "points", "level"),
    [
        (HOUR_S, 200, WINDOWS),
        (2 * HOUR_S, 200, MINUTES),
        (2 * HOUR_S, 400, WINDOWS),
        (2 * DAY_S, 200, MINUTES),
        (3 * DAY_S, 200, QUARTERS),
        (60 * DAY_S, 1000, QUARTERS),
    ],
)
def test_the_finest_level_that_has_it_all_answers(
    ago_s: int, points: int, level: SeriesLevel
) -> None:
    assert level_for(NOW - ago_s, NOW, NOW, points) is level


def test_a_short_look_at_long_ago_is_answered_by_what_is_left_of_it() -> None:
    then = NOW - 10 * DAY_S
    assert level_for(then, then + 600, NOW, 200) is QUARTERS


@pytest.mark.parametrize("span_s", [60, 599, 3600, 7200, DAY_S, 2 * DAY_S, 45 * DAY_S])
@pytest.mark.parametrize("points", [2, 10, 200, 1000])
def test_steps_are_multiples_of_the_levels_and_give_no_more_points_than_wanted(
    span_s: int, points: int
) -> None:
    level = level_for(NOW - span_s, NOW, NOW, points)
    step_s = step_for(NOW - span_s, NOW, level, points)
    assert step_s % level.step_s == 0
    assert span_s / step_s <= points


def test_a_stretch_is_sealed_once_it_is_over_and_nothing_of_it_can_come_any_more() -> None:
    start = 20_000 * DAY_S
    oldest, over = start + 1800, start + HOUR_S + LATE_S
    assert sealable(MINUTES, oldest, over - 1) is None
    assert sealable(MINUTES, oldest, over) == start
    assert sealable(QUARTERS, oldest, over) is None
    assert sealable(QUARTERS, oldest, start + DAY_S + LATE_S) == start

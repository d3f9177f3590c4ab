"""A long point is told before it is over, with its rates over what has passed of it."""

from control.series.levels import QUARTERS, WINDOWS
from control.series.points import SeriesPoint
from control.series.reading import SeriesRange, with_open_point
from control.series.views import view_of
from control.series.views import with_open_point as over_what_passed

HALF_DAY_S = 43_200
LONG = SeriesRange(0, 2 * HALF_DAY_S, HALF_DAY_S, QUARTERS)


def test_half_a_day_is_not_waited_for() -> None:
    within, open_s = with_open_point(LONG, 2 * HALF_DAY_S + 3600)
    assert (within.until, open_s) == (3 * HALF_DAY_S, 3600)


def test_what_has_just_begun_or_is_over_soon_is_left_out() -> None:
    assert with_open_point(LONG, 2 * HALF_DAY_S + 30) == (LONG, 0)
    short = SeriesRange(0, 100, 10, WINDOWS)
    assert with_open_point(short, 109) == (short, 0)


def test_the_rates_of_the_open_point_are_over_what_has_passed() -> None:
    points = {
        at: SeriesPoint(7200, {"OTHER": 3600}, busy_us=3_600_000_000) for at in (0, HALF_DAY_S)
    }
    view = view_of("m", points, [0, HALF_DAY_S], HALF_DAY_S, set())
    told = over_what_passed(view, HALF_DAY_S, 3600)
    assert told.requests_per_s == [0.25, 3.0]
    assert told.failed_per_s["OTHER"][1] == 1.0
    assert told.instances_busy[1] == 1.0
    assert told.error_rate == view.error_rate

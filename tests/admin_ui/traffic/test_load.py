"""A page with charts is looked at again when there is a point more in them."""

from datetime import UTC, datetime, timedelta

import pytest

from admin_ui.traffic.load import ARRIVES_S, LONGEST_LOOK_S, TrafficCharts
from admin_ui.traffic.ranges import TimeRange

NINE = datetime(2026, 11, 24, 9, tzinfo=UTC)


def charts(step_s: int, passed_s: float, name: str = "1h") -> TrafficCharts:
    until = NINE + timedelta(seconds=passed_s)
    return TrafficCharts(TimeRange(name, until - timedelta(hours=1), until), [], step_s, 0, "/")


@pytest.mark.parametrize("passed_s", [0.0, 1.9, 2.0, 17.0, 29.9])
def test_the_next_look_is_when_the_next_point_has_arrived(passed_s: float) -> None:
    look = passed_s + charts(30, passed_s).next_look_s
    assert look == pytest.approx(ARRIVES_S if passed_s < ARRIVES_S else 30 + ARRIVES_S)


def test_ages_are_kept_up_where_points_are_long() -> None:
    assert charts(720, 10.0).next_look_s == pytest.approx(50.0 + ARRIVES_S)


def test_a_stretch_that_is_over_is_looked_at_rarely() -> None:
    assert charts(10, 7.0, name="").next_look_s == LONGEST_LOOK_S

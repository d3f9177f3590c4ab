"""A page with charts is looked at again when there is a point more in them."""

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from admin_ui.traffic.charts import Column, TrafficChart
from admin_ui.traffic.load import (
    ARRIVES_S,
    FIGURES_S,
    LATE_LOOK_S,
    LONGEST_LOOK_S,
    TrafficCharts,
    next_look_s,
)
from admin_ui.traffic.ranges import TimeRange

NINE = datetime(2026, 11, 24, 9, tzinfo=UTC)


def charts(
    step_s: int, passed_s: float, name: str = "1h", columns: Sequence[Column] = ()
) -> TrafficCharts:
    until = NINE + timedelta(seconds=passed_s)
    within = TimeRange(name, until - timedelta(hours=1), until)
    drawn = [TrafficChart("requests", "", "", [], [], [one], {}) for one in columns]
    return TrafficCharts(within, drawn, step_s, 0, "/")


@pytest.mark.parametrize("passed_s", [0.0, 1.9, 2.0, 17.0, 29.9])
def test_the_next_look_is_when_the_next_point_has_arrived(passed_s: float) -> None:
    look = passed_s + charts(30, passed_s).next_look_s
    assert look == pytest.approx(ARRIVES_S if passed_s < ARRIVES_S else 30 + ARRIVES_S)


def test_ages_are_kept_up_where_points_are_long() -> None:
    assert charts(720, 10.0).next_look_s == pytest.approx(50.0 + ARRIVES_S)


def test_a_stretch_that_is_over_is_looked_at_rarely() -> None:
    assert charts(10, 7.0, name="").next_look_s == LONGEST_LOOK_S


@pytest.mark.parametrize(
    ("columns", "late"),
    [
        ([[1.0, 2.0, None], [None, None, None]], True),
        ([[1.0, 2.0, None], [None, None, 0.0]], False),
        ([[1.0, None, None]], False),
        ([[None]], False),
        ([], False),
    ],
)
def test_a_point_that_has_not_arrived_in_time_is_looked_for_soon(
    columns: Sequence[Column], late: bool
) -> None:
    expected = LATE_LOOK_S if late else 30.0
    assert charts(30, ARRIVES_S, columns=columns).next_look_s == expected
    assert charts(720, ARRIVES_S, columns=columns).next_look_s == LONGEST_LOOK_S


def test_figures_that_the_gateway_has_now_are_looked_at_more_often() -> None:
    assert next_look_s(charts(60, ARRIVES_S)) == 60.0
    assert next_look_s(charts(60, ARRIVES_S), has_figures=True) == FIGURES_S
    assert next_look_s(charts(60, 55.0), has_figures=True) == pytest.approx(5.0 + ARRIVES_S)
    assert next_look_s(None, has_figures=True) is None

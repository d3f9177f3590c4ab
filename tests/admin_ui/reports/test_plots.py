"""Plots of reports as shapes: what is drawn where, and what stands on the axes."""

import math
from typing import Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admin_ui.reports.plots import (
    BOTTOM,
    HEIGHT,
    LEFT,
    MOST_DRAWN_POINTS,
    RIGHT,
    TOP,
    WIDTH,
    curves,
    draw,
    number_text,
    ticks,
)
from control.jobs.messages import CurvePoint
from control.jobs.report import Plot, PlotSeries

NUMBERS = st.floats(-1e12, 1e12, allow_nan=False)


@given(NUMBERS, st.floats(1e-6, 1e12))
def test_ticks_are_round_few_and_around_all_values(low: float, size: float) -> None:
    high = low + size
    if high - low < 1e-9 * max(abs(low), abs(high)):
        return
    found = ticks(low, high)
    assert 2 <= len(found) <= 8
    assert found[0] <= low + size * 1e-6
    assert found[-1] >= high - size * 1e-6
    assert found == sorted(set(found))


def test_ticks_of_a_small_span_are_told_apart() -> None:
    assert [number_text(one) for one in ticks(0.97, 0.99)] == [
        "0.97", "0.975", "0.98", "0.985", "0.99",
    ]  # fmt: skip


@given(st.lists(st.tuples(NUMBERS, NUMBERS), min_size=1, max_size=50))
def test_every_point_lies_within_the_axes(points: list[tuple[float, float]]) -> None:
    drawn = draw(Plot("p", "x", "y", (PlotSeries("s", tuple(points)),), "scatter"))
    (series,) = drawn.series
    assert len(series.markers) == len(points)
    for mark in series.markers:
        assert LEFT - 0.1 <= mark.x <= WIDTH - RIGHT + 0.1
        assert TOP - 0.1 <= mark.y <= HEIGHT - BOTTOM + 0.1


def test_numbers_that_are_none_are_left_out_and_nothing_is_an_empty_plot() -> None:
    lost = (math.nan, 1.0), (0.0, math.inf)
    assert draw(Plot("p", "x", "y", (PlotSeries("s", lost),))).series == ()
    kept = draw(Plot("p", "x", "y", (PlotSeries("s", (*lost, (1.0, 2.0))),)))
    assert kept.rows == [("s", "1", "2")]


ANY = st.floats() | st.sampled_from([0.0, 5e-324, 1e-320, -1e308, 1e308, 1e100, 1e-101, 1e-15])
MARKS = st.dictionaries(st.sampled_from(["0", "²", "٣", "-1", "1" * 5_000]), st.just("m"))


@given(
    st.lists(st.tuples(ANY, ANY), max_size=20), MARKS, st.sampled_from(["line", "scatter", "bar"])
)
def test_whatever_numbers_and_marks_a_report_has_it_is_drawn(
    points: list[tuple[float, float]],
    marks: dict[str, str],
    kind: Literal["line", "scatter", "bar"],
) -> None:
    drawn = draw(Plot("p", "x", "y", (PlotSeries("s", tuple(points), marks),), kind))
    for series in drawn.series:
        for mark in series.markers:
            assert LEFT - 0.1 <= mark.x <= WIDTH - RIGHT + 0.1
            assert TOP - 0.1 <= mark.y <= HEIGHT - BOTTOM + 0.1
        for bar in series.bars:
            assert TOP - 0.2 <= bar.y <= bar.y + bar.height <= HEIGHT - BOTTOM + 0.2


def test_ticks_of_a_tiny_span_are_told_apart() -> None:
    assert [number_text(one) for one in ticks(1e-15, 3e-15)] == [
        "1e-15", "1.5e-15", "2e-15", "2.5e-15", "3e-15",
    ]  # fmt: skip


def test_of_a_series_that_is_too_long_the_first_points_are_drawn() -> None:
    points = tuple((float(at), 1.0) for at in range(3 * MOST_DRAWN_POINTS))
    drawn = draw(Plot("p", "x", "y", (PlotSeries("s", points),), "scatter"))
    assert len(drawn.rows) == len(drawn.series[0].markers) == MOST_DRAWN_POINTS


def test_a_constant_line_is_drawn_in_the_middle() -> None:
    drawn = draw(Plot("p", "x", "y", (PlotSeries("s", ((0.0, 5.0), (1.0, 5.0))),)))
    ys = [mark.y for mark in drawn.series[0].markers]
    assert ys[0] == ys[1] == pytest.approx((TOP + HEIGHT - BOTTOM) / 2, abs=20)


def test_bars_of_two_series_stand_side_by_side_on_the_zero_line() -> None:
    before = PlotSeries("before", ((1.0, 4.0), (8.0, 2.0)), {"0": "batch 1", "1": "batch 8"})
    after = PlotSeries("after", ((1.0, 2.0), (8.0, -1.0)))
    drawn = draw(Plot("p", "batch", "ms", (before, after), "bar"))
    one, two = (series.bars for series in drawn.series)
    assert one[0].x + one[0].width == pytest.approx(two[0].x, abs=0.2)
    assert one[0].height == pytest.approx(2 * two[0].height, abs=0.2)
    assert two[1].y == pytest.approx(one[1].y + one[1].height, abs=0.2)
    assert [tick.text for tick in drawn.x_ticks] == ["batch 1", "batch 8"]


def test_marks_name_points_of_a_long_line_which_has_no_other_markers() -> None:
    points = tuple((float(at), float(at)) for at in range(200))
    drawn = draw(Plot("p", "x", "y", (PlotSeries("s", points, {"7": "chosen"}),)))
    (mark,) = drawn.series[0].markers
    assert (mark.label, mark.words) == ("chosen", "s: 7 at 7")


def test_live_curves_are_a_plot_for_each_name_in_the_order_in_which_they_began() -> None:
    points = [
        CurvePoint("loss", 0, 2.0),
        CurvePoint("accuracy", 0, 0.1),
        CurvePoint("loss", 1, 1.0),
    ]
    assert [(one.title, one.series[0].points) for one in curves(points)] == [
        ("loss", ((0, 2.0), (1, 1.0))),
        ("accuracy", ((0, 0.1),)),
    ]

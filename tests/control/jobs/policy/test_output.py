"""How much of what a job prints and draws is kept."""

import math

from hypothesis import given
from hypothesis import strategies as st

from control.jobs.messages import CurvePoint
from control.jobs.policy.output import (
    CURVE_POINTS,
    CURVES,
    LOG_CHARACTERS,
    OMITTED,
    kept_points,
    log_tail,
)


@given(st.lists(st.lists(st.text(max_size=6000), max_size=20), max_size=8))
def test_a_log_never_outgrows_its_bound_and_keeps_its_last_line(batches: list[list[str]]) -> None:
    log = ""
    for lines in batches:
        log = log_tail(log, lines)
    assert len(log) <= LOG_CHARACTERS
    assert "\0" not in log
    last = next((lines[-1] for lines in reversed(batches) if lines), None)
    if last is not None and len(last) < 4000:
        assert log.endswith(last.replace("\0", "").replace("\n", " ") + "\n")


def test_a_log_that_was_cut_says_so_once() -> None:
    log = ""
    for number in range(3000):
        log = log_tail(log, [f"line {number} " + "x" * 40])
    assert log.startswith(OMITTED)
    assert log.count(OMITTED) == 1
    assert log.splitlines()[1].startswith("line ")


def test_a_long_curve_is_thinned_and_keeps_its_last_point() -> None:
    points: list[CurvePoint] = []
    for first in range(0, 5 * CURVE_POINTS, 50):
        points = kept_points(points, [CurvePoint("loss", first + n, n) for n in range(50)])
        assert len(points) <= CURVE_POINTS
    assert points[0].step == 0
    assert points[-1].step == 5 * CURVE_POINTS - 1
    assert [point.step for point in points] == sorted(point.step for point in points)


def test_curves_beyond_the_bound_and_values_that_are_no_numbers_are_not_kept() -> None:
    many = [CurvePoint(f"curve {number}", 0, 0) for number in range(2 * CURVES)]
    assert len(kept_points([], many)) == CURVES
    assert kept_points([], [CurvePoint("loss", 0, math.nan), CurvePoint("loss", math.inf, 0)]) == []

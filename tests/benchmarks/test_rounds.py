"""How sure the median of pairs is, and what is said of it."""

import math

import pytest

from benchmarks.report import Added, Report
from benchmarks.rounds import Spread, spread_of
from benchmarks.scenarios import routing
from benchmarks.targets import checks


@pytest.mark.parametrize(
    ("count", "lower", "upper"),
    [(1, -math.inf, math.inf), (5, -math.inf, math.inf), (6, 0, 5), (12, 2, 9), (100, 39, 60)],
)
def test_the_bounds_of_a_median_are_those_of_the_sign_test(
    count: int, lower: float, upper: float
) -> None:
    numbers = [float(number) for number in reversed(range(count))]
    assert spread_of(numbers) == Spread((count - 1) / 2, lower, upper)


@pytest.mark.parametrize(
    ("spread", "met", "sure"),
    [
        (Spread(4.9, 1.0, 9.0), True, False),
        (Spread(4.9, 4.0, 5.0), True, True),
        (Spread(5.1, 1.0, 9.0), False, False),
        (Spread(7.0, 5.1, 9.0), False, True),
    ],
)
def test_a_route_is_judged_by_the_median_of_its_pairs(
    spread: Spread, met: bool, sure: bool
) -> None:
    report = Report(added=[Added("gRPC", routing.STICKY, routing.DIRECT, 12, 30.0, spread)])
    (check,) = (one for one in checks(report) if one.met is not None)
    assert (check.met, check.sure) == (met, sure)
    assert "12 pairs, 95 % sure of" in check.measured

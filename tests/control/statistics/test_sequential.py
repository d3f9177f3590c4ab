"""Intervals hold however often one looks, are honest about few values, and find real effects."""

import math
import random

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.statistics.sequential import (
    FEW,
    FEWEST_FOR_MEANS,
    Interval,
    Moments,
    difference_of_means,
    difference_of_rates,
    evidence,
    moments_of,
    width,
)

EXPERIMENTS, LOOKS = 1_000, 40
ALPHA = 0.05


def test_the_price_of_looking_always_is_half_as_wide_again_at_the_horizon() -> None:
    assert width(5_000, ALPHA) / 1.96 == pytest.approx(1.55, abs=0.01)
    assert width(500, ALPHA) / 1.96 == pytest.approx(1.97, abs=0.01)
    ratios = [width(n, ALPHA, 5_000) / math.sqrt(n) for n in (100, 1_000, 10_000, 100_000)]
    assert ratios == sorted(ratios, reverse=True)


def test_without_requests_nothing_is_known_of_the_rates() -> None:
    assert difference_of_rates(0, 0, 0, 0, ALPHA) == Interval(-1.0, 1.0)
    assert difference_of_rates(5, 10, 0, 0, ALPHA) == Interval(-1.0, 1.0)


def test_none_seen_is_not_taken_for_none_to_come() -> None:
    found = difference_of_rates(0, 300, 0, 300, ALPHA)
    assert found.lower < -0.01
    assert found.upper > 0.01


@given(
    a=st.integers(0, 400), n_a=st.integers(1, 400), b=st.integers(0, 9_000),
    n_b=st.integers(1, 9_000), alpha=st.floats(1e-6, 0.25),
)  # fmt: skip
def test_a_smaller_alpha_and_swapped_arms_give_what_they_must(
    a: int, n_a: int, b: int, n_b: int, alpha: float
) -> None:
    a, b = min(a, n_a), min(b, n_b)
    found = difference_of_rates(a, n_a, b, n_b, alpha)
    surer = difference_of_rates(a, n_a, b, n_b, alpha / 2)
    swapped = difference_of_rates(b, n_b, a, n_a, alpha)
    assert found.has(a / n_a - b / n_b)
    assert surer.lower <= found.lower
    assert found.upper <= surer.upper
    assert (-swapped.upper, -swapped.lower) == pytest.approx((found.lower, found.upper), abs=1e-9)


@pytest.mark.parametrize("wrong", [(3, 2, 0, 1, 0.05), (-1, 2, 0, 1, 0.05), (0, 1, 0, 1, 0.6)])
def test_what_cannot_be_a_rate_or_an_alpha_is_refused(
    wrong: tuple[int, int, int, int, float],
) -> None:
    with pytest.raises(ValueError, match=r"cannot be a rate|alpha must be"):
        difference_of_rates(*wrong)


def test_a_horizon_below_one_is_refused() -> None:
    with pytest.raises(ValueError, match="horizon must be at least 1, got 0"):
        difference_of_means(Moments(), Moments(), ALPHA, horizon=0)


def test_few_values_or_equal_ones_say_nothing_of_a_mean() -> None:
    few = moments_of(random.Random(1).gauss(0, 1) for _ in range(FEWEST_FOR_MEANS - 1))
    many = moments_of(random.Random(2).gauss(0, 1) for _ in range(1_000))
    everything = Interval(-math.inf, math.inf)
    assert difference_of_means(few, many, ALPHA) == everything
    assert difference_of_means(moments_of([1.0] * 99), moments_of([1.0] * 99), ALPHA) == everything
    still = difference_of_means(moments_of([0.0] * 99), many, ALPHA)
    assert still.upper - still.lower > 0.5


@given(st.lists(st.floats(-1e6, 1e6), max_size=50), st.lists(st.floats(-1e6, 1e6), max_size=50))
def test_merged_moments_are_those_of_all_values(left: list[float], right: list[float]) -> None:
    both, whole = moments_of(left).merged(moments_of(right)), moments_of(left + right)
    assert both.n == whole.n
    assert both.mean == pytest.approx(whole.mean, abs=1e-6)
    assert both.m2 == pytest.approx(whole.m2, rel=1e-6, abs=1e-3)


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=50))
def test_a_value_taken_back_was_never_there(values: list[float]) -> None:
    found, whole = moments_of(values).without(values[-1]), moments_of(values[:-1])
    assert found.n == whole.n
    assert found.mean == pytest.approx(whole.mean, abs=1e-6)
    assert found.m2 == pytest.approx(whole.m2, rel=1e-6, abs=1e-3)


def test_evidence_is_the_alpha_at_which_the_interval_begins_to_leave_out_the_null() -> None:
    def at(alpha: float) -> Interval:
        return difference_of_rates(100, 2_000, 60, 2_000, alpha)

    p_value = evidence(at)
    assert p_value < ALPHA
    assert at(p_value * 0.99).has(0.0)
    assert not at(p_value * 1.01).has(0.0)
    assert evidence(lambda alpha: difference_of_rates(50, 1_000, 50, 1_000, alpha)) == 1.0
    assert evidence(lambda alpha: difference_of_rates(0, 9_000, 9_000, 9_000, alpha)) == 1e-9


@pytest.mark.slow
@pytest.mark.parametrize(
    ("rate", "batch_a", "batch_b", "horizon"),
    [
        (0.001, 200, 200, 5_000),
        (0.01, 50, 50, 5_000),
        (0.01, 10, 990, 5_000),
        (0.3, 50, 50, 5_000),
        (0.3, 50, 50, 50_000),
        (0.002, 20, 2_000, 5_000),
    ],
)
def test_equal_rates_are_called_different_in_at_most_one_of_twenty(
    rate: float, batch_a: int, batch_b: int, horizon: int
) -> None:
    draw = numpy.random.default_rng(20261121)
    different = 0
    for _ in range(EXPERIMENTS):
        bad_a = draw.binomial(batch_a, rate, LOOKS).cumsum().tolist()
        bad_b = draw.binomial(batch_b, rate, LOOKS).cumsum().tolist()
        different += any(
            not difference_of_rates(a, look * batch_a, b, look * batch_b, ALPHA, horizon).has(0.0)
            for look, a, b in zip(range(1, LOOKS + 1), bad_a, bad_b, strict=True)
        )
    print(f"rate {rate} {batch_a}:{batch_b} horizon {horizon}: {different / EXPERIMENTS:.2%}")
    assert different / EXPERIMENTS <= ALPHA


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["normal", "exponential", "lognormal"])
def test_equal_means_are_called_different_in_at_most_one_of_twenty(kind: str) -> None:
    draw = numpy.random.default_rng(20261121)
    different = 0
    for _ in range(EXPERIMENTS):
        a = b = Moments()
        for _ in range(LOOKS):
            a = a.merged(_drawn(draw, kind))
            b = b.merged(_drawn(draw, kind))
            if not difference_of_means(a, b, ALPHA).has(0.0):
                different += 1
                break
    print(f"{kind} means: {different / EXPERIMENTS:.2%}")
    assert different / EXPERIMENTS <= ALPHA


def _drawn(draw: numpy.random.Generator, kind: str, count: int = 50) -> Moments:
    values = {
        "normal": lambda: draw.normal(10, 3, count),
        "exponential": lambda: draw.exponential(2, count),
        "lognormal": lambda: draw.lognormal(0, 1.5, count),
    }[kind]()
    return Moments(count, float(values.mean()), float(((values - values.mean()) ** 2).sum()))


@pytest.mark.slow
def test_a_rate_twice_as_high_is_found_within_the_horizon() -> None:
    draw, horizon, found = numpy.random.default_rng(20261121), 5_000, 0
    for _ in range(500):
        bad_a = draw.binomial(125, 0.10, 20).cumsum().tolist()
        bad_b = draw.binomial(125, 0.05, 20).cumsum().tolist()
        found += any(
            not difference_of_rates(a, look * 125, b, look * 125, ALPHA, horizon).has(0.0)
            for look, a, b in zip(range(1, 21), bad_a, bad_b, strict=True)
        )
    print(f"5 % against 10 % found in {found / 500:.1%}")
    assert found / 500 >= 0.95


def test_the_exact_interval_is_heeded_while_failures_are_few() -> None:
    few = difference_of_rates(FEW - 1, 4_000, 40, 4_000, ALPHA)
    enough = difference_of_rates(FEW, 4_000, 40, 4_000, ALPHA)
    assert few.upper - few.lower > 1.2 * (enough.upper - enough.lower)

"""Latencies in buckets: what is read from them is near the truth, and the bounds contain it."""

import math
from itertools import pairwise

import numpy
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.statistics.histogram import (
    BUCKETS,
    EDGES,
    LONGEST_S,
    SHORTEST_S,
    Histogram,
    histogram_of,
    lasting_quantile_ratio,
    quantile_ratio,
)
from control.statistics.sequential import Interval

EXPERIMENTS, LOOKS, BATCH = 2_000, 20, 100
ALPHA = 0.05

latencies = st.lists(st.floats(SHORTEST_S, LONGEST_S), min_size=1, max_size=100)


def test_buckets_reach_from_ten_microseconds_to_a_thousand_seconds() -> None:
    assert EDGES[0] == SHORTEST_S
    assert EDGES[-2] < LONGEST_S <= EDGES[-1]
    assert max(b / a for a, b in pairwise(EDGES)) < 1.05
    assert len(EDGES) + 1 == BUCKETS


@given(latencies, st.floats(0.001, 0.999))
def test_a_quantile_is_within_five_percent(seconds: list[float], q: float) -> None:
    rank = max(1, math.ceil(q * len(seconds)))
    assert histogram_of(seconds).quantile(q) == pytest.approx(sorted(seconds)[rank - 1], rel=0.05)


@given(latencies, latencies)
def test_merged_is_as_if_all_had_been_added_to_one(left: list[float], right: list[float]) -> None:
    both = histogram_of(left).merged(histogram_of(right))
    assert both.counts == histogram_of(left + right).counts
    assert both.n == len(left + right)


@given(st.lists(st.floats(0, 1e4), max_size=100))
def test_many_are_added_as_one_by_one(seconds: list[float]) -> None:
    at_once = Histogram()
    at_once.add_many(seconds)
    assert at_once.counts == histogram_of(seconds).counts
    assert at_once.n == len(seconds)


@given(st.lists(st.floats(0, 1e4), max_size=100))
def test_the_packed_form_gives_the_same_back(seconds: list[float]) -> None:
    kept = histogram_of(seconds)
    packed = kept.as_list()
    assert Histogram.from_list(packed).counts == kept.counts
    assert Histogram.from_list(packed).n == kept.n
    assert len(packed) <= BUCKETS + 1


@pytest.mark.parametrize(
    "packed", [[-1, 2], [0, -2], [BUCKETS, 1], [0, *[1] * (BUCKETS + 1)], [0, 1.5], [True, 1]]
)
def test_what_is_no_packed_histogram_is_refused(packed: list[int]) -> None:
    with pytest.raises(ValueError, match="not a histogram"):
        Histogram.from_list(packed)


def test_an_empty_histogram_knows_no_quantile_and_no_ratio() -> None:
    empty, full = Histogram(), histogram_of([0.01] * 1_000)
    assert math.isnan(empty.quantile(0.5))
    for ratio in quantile_ratio, lasting_quantile_ratio:
        assert ratio(empty, full, 0.5, ALPHA) == Interval(0.0, math.inf)
        assert ratio(full, empty, 0.5, ALPHA) == Interval(0.0, math.inf)


def test_what_is_too_short_or_too_long_counts_at_the_ends() -> None:
    kept = histogram_of([-1.0, 0.0, 1e-9, 5e3])
    assert kept.counts[0] == 3
    assert kept.counts[-1] == 1
    assert kept.quantile(0.5) == SHORTEST_S
    assert kept.quantile(0.99) == EDGES[-1]


@pytest.mark.parametrize(("q", "least"), [(0.99, 437), (0.95, 86)])
def test_a_bound_needs_as_many_requests_as_is_said(q: float, least: int) -> None:
    plenty = histogram_of([0.01] * 10_000)
    for count, known in (least, True), (least - 1, False):
        found = quantile_ratio(histogram_of([0.02] * count), plenty, q, ALPHA)
        assert math.isfinite(found.upper) is known


def test_a_constant_latency_twice_as_long_is_a_ratio_of_two_give_or_take_a_bucket() -> None:
    slow, fast = histogram_of([0.02] * 2_000), histogram_of([0.01] * 2_000)
    for ratio in quantile_ratio, lasting_quantile_ratio:
        found = ratio(slow, fast, 0.5, ALPHA)
        assert found.has(2.0)
        assert found.upper / found.lower < 1.05


def test_looking_always_costs_less_than_twice_the_width() -> None:
    draw = numpy.random.default_rng(20261121)
    a, b = _drawn(draw, 5_000), _drawn(draw, 5_000)
    always, once = lasting_quantile_ratio(a, b, 0.5, ALPHA), quantile_ratio(a, b, 0.5, ALPHA)
    assert always.lower <= once.lower
    assert once.upper <= always.upper
    assert math.log(always.upper / always.lower) < 2 * math.log(once.upper / once.lower)


@pytest.mark.parametrize(("q", "alpha"), [(0.0, 0.05), (1.0, 0.05), (0.5, 0.0), (0.5, 0.51)])
def test_quantiles_and_alphas_out_of_range_are_refused(q: float, alpha: float) -> None:
    with pytest.raises(ValueError, match=r"between 0 and 1|alpha must be"):
        quantile_ratio(Histogram(), Histogram(), q, alpha)


@pytest.mark.slow
@pytest.mark.parametrize("q", [0.5, 0.95, 0.99])
def test_equal_latencies_get_a_ratio_without_one_in_at_most_one_window_of_twenty(q: float) -> None:
    draw, different = numpy.random.default_rng(20261121), 0
    for _ in range(EXPERIMENTS):
        found = quantile_ratio(_drawn(draw, 1_000), _drawn(draw, 1_000), q, ALPHA)
        different += not found.has(1.0)
    print(f"q {q}, one look: {different / EXPERIMENTS:.2%}")
    assert different / EXPERIMENTS <= ALPHA


@pytest.mark.slow
@pytest.mark.parametrize(("q", "experiments"), [(0.5, 2_000), (0.95, 2_000), (0.99, 500)])
def test_equal_latencies_are_called_different_in_at_most_one_of_twenty(
    q: float, experiments: int
) -> None:
    draw, different = numpy.random.default_rng(20261121), 0
    for _ in range(experiments):
        a, b = Histogram(), Histogram()
        for _ in range(LOOKS):
            for arm in a, b:
                arm.add_many(draw.lognormal(-4.6, 0.5, BATCH))
            if not lasting_quantile_ratio(a, b, q, ALPHA).has(1.0):
                different += 1
                break
    print(f"q {q}, {LOOKS} looks: {different / experiments:.2%}")
    assert different / experiments <= ALPHA


@pytest.mark.slow
def test_latencies_a_quarter_longer_are_found_within_the_horizon() -> None:
    draw, found = numpy.random.default_rng(20261121), 0
    for _ in range(300):
        a, b = Histogram(), Histogram()
        for _ in range(25):
            a, b = a.merged(_drawn(draw, BATCH, 1.25)), b.merged(_drawn(draw, BATCH))
            if lasting_quantile_ratio(a, b, 0.5, ALPHA).lower > 1.0:
                found += 1
                break
    print(f"p50 a quarter longer, 5,000 requests: found in {found / 300:.1%}")
    assert found / 300 >= 0.95


@pytest.mark.slow
def test_a_candidate_twice_as_slow_is_found_in_one_window() -> None:
    draw, found = numpy.random.default_rng(20261121), 0
    for _ in range(500):
        slow, fast = _drawn(draw, 1_000, 2.0), _drawn(draw, 1_000)
        found += quantile_ratio(slow, fast, 0.99, ALPHA).lower > 1.1
    print(f"twice as slow, p99 of 1,000: found in {found / 500:.1%}")
    assert found / 500 >= 0.9


def _drawn(draw: numpy.random.Generator, count: int, times: float = 1.0) -> Histogram:
    made = Histogram()
    made.add_many(draw.lognormal(-4.6, 0.5, count) * times)
    return made

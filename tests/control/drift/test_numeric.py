"""Histograms of numbers: exact merging, bounded, buckets that fit the data."""

import math
import random
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.drift.numeric import (
    MOST_BUCKETS,
    buckets_of,
    counted,
    edges_of,
    key_of,
    merged_numeric,
    size_of,
    value_of,
)
from control.drift.points import NumericCounts

NUMBERS = st.floats(width=32, allow_nan=True, allow_infinity=True)
SAMPLES = st.lists(NUMBERS, max_size=1200)


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float32_is_found_again_by_its_place(value: float) -> None:
    assert value_of(key_of(value)) == value


@given(*[st.floats(width=32, allow_nan=False, allow_infinity=False)] * 2)
def test_places_are_in_the_order_of_numbers(one: float, other: float) -> None:
    assert (key_of(one) < key_of(other)) == (one < other)


@given(SAMPLES, SAMPLES, SAMPLES)
def test_merging_is_associative_commutative_and_that_of_all_values(
    a: list[float], b: list[float], c: list[float]
) -> None:
    x, y, z = counted(a), counted(b), counted(c)
    left = merged_numeric([merged_numeric([x, y]), z])
    right = merged_numeric([x, merged_numeric([y, z])])
    assert left == right == merged_numeric([z, x, y]) == counted(a + b + c)


@given(SAMPLES)
def test_it_is_bounded_and_counts_every_value(values: list[float]) -> None:
    found = counted(values)
    assert len(found.counts) <= 2 * MOST_BUCKETS
    assert size_of(found) == len(values)


def test_every_float32_fits() -> None:
    octaves = [s * 2.0**e for s in (1, -1) for e in range(-149, 128)]
    values = [x * (1 + k / 64) for x in octaves for k in range(0, 64, 7)]
    found = counted(values)
    assert len(found.counts) <= 2 * MOST_BUCKETS
    assert found.shift <= 23


def test_far_from_zero_buckets_are_as_fine_as_the_values_lie_apart() -> None:
    drawn = random.Random(1)
    found = counted([drawn.gauss(1000, 1) for _ in range(5000)])
    low, high = edges_of(next(iter(buckets_of(found))), found.shift)
    assert high - low < 0.05


def test_a_bucket_over_many_powers_of_two_is_an_eighth_of_an_octave_or_finer() -> None:
    drawn = random.Random(1)
    found = counted([drawn.gauss(0, 1) for _ in range(20_000)])
    assert found.shift <= 20


def test_few_whole_numbers_have_a_bucket_each() -> None:
    found = counted([3, 3, 7, -2])
    assert found.shift == 0
    assert {edges_of(b, 0)[0]: n for b, n in buckets_of(found).items()} == {-2: 1, 3: 2, 7: 1}


def test_what_is_not_finite_is_counted_apart() -> None:
    assert counted([math.nan, math.inf, -math.inf, 1.0]).not_finite == 3


@pytest.mark.parametrize(
    "counts",
    [
        NumericCounts(0, (1,)),
        NumericCounts(0, (1, 0)),
        NumericCounts(0, (1, 2, 0, 3)),
        NumericCounts(-1, (1, 2)),
        NumericCounts(40, (1, 2)),
        NumericCounts(0, (1, 1) * (MOST_BUCKETS + 1)),
    ],
)
def test_what_no_counter_makes_is_refused(counts: NumericCounts) -> None:
    with pytest.raises(ValueError, match="histogram"):
        buckets_of(counts)


def test_the_gateways_counter_counts_the_same(  # numpy there, plain Python here
) -> None:
    import numpy as np

    from server.drift.counting import NumericCounter

    drawn = np.random.default_rng(1)
    values = np.concatenate(
        [drawn.normal(size=3000), drawn.lognormal(0, 4, 2000), [0, -0.0, np.nan, np.inf]]
    ).astype(np.float32)
    counter = NumericCounter()
    for part in np.array_split(values, 37):
        counter.add(part)
    assert counter.counts() == counted(values.tolist())
    assert Counter(buckets_of(counter.counts())).total() == 5002

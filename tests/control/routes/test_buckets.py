"""A unit keeps its bucket; a weight that grows takes units and gives none back."""

import numpy
import pytest

from control.routes.buckets import BUCKETS, bucket

UNITS = 1_000_000
STEPS = (1, 100, 500, 2_500, 5_000, 10_000)


def test_a_unit_falls_into_the_bucket_it_fell_into_when_this_was_written() -> None:
    assert [bucket("salt", unit) for unit in ("ada", "grace")] == [1281, 4629]


def test_any_text_has_a_bucket() -> None:
    assert all(0 <= bucket("salt", unit) < BUCKETS for unit in ("", "ä", "\ud800", "x" * 10_000))


def test_buckets_are_even_and_unrelated_between_salts() -> None:
    one = numpy.array([bucket("one", f"{number}") for number in range(50_000)])
    two = numpy.array([bucket("two", f"{number}") for number in range(50_000)])
    assert one.min() >= 0
    assert one.max() < BUCKETS
    tenths = numpy.bincount(one // 1_000, minlength=10)
    off = ((tenths - 5_000) ** 2 / 5_000).sum()
    assert off < 33.7  # chi-square with 9 degrees of freedom: one in ten thousand
    assert abs(numpy.corrcoef(one, two)[0, 1]) < 0.02


@pytest.mark.slow
def test_a_million_units_stay_with_the_candidate_at_every_step_of_a_growing_weight() -> None:
    buckets = numpy.array([bucket("rollout-1", f"user-{number}") for number in range(UNITS)])
    again = numpy.array([bucket("rollout-1", f"user-{number}") for number in range(UNITS)])
    assert (buckets == again).all()
    moved_back = 0
    for small, large in zip((0, *STEPS), STEPS, strict=False):
        moved_back += int(((buckets < small) & ~(buckets < large)).sum())
        share, error = (buckets < large).mean(), (large / 1e4 * (1 - large / 1e4) / UNITS) ** 0.5
        assert abs(share - large / 1e4) <= 4.5 * error
    assert moved_back == 0

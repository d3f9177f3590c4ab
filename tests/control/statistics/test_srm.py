"""Arms that did not get their share are noticed; chance is not."""

import numpy
import pytest

from control.statistics.srm import SampleRatio, sample_ratio

HALVES = {"a": 0.5, "b": 0.5}


def test_a_share_as_wanted_is_no_mismatch() -> None:
    assert sample_ratio({"a": 5_000, "b": 5_050}, HALVES).mismatch is False
    assert sample_ratio({"a": 990, "b": 9_010}, {"a": 10, "b": 90}).p_value == pytest.approx(
        0.739, abs=1e-3
    )


def test_a_share_off_by_three_percent_of_ten_thousand_is_one() -> None:
    found = sample_ratio({"a": 5_300, "b": 4_700}, HALVES)
    assert found.mismatch
    assert found.p_value is not None
    assert found.p_value < 1e-8


def test_an_arm_that_nobody_reached_is_one() -> None:
    assert sample_ratio({"a": 100}, HALVES).mismatch


def test_too_few_units_say_nothing() -> None:
    assert sample_ratio({"a": 15}, HALVES) == SampleRatio(None, mismatch=False)
    assert sample_ratio({"a": 1_000}, {"a": 1.0, "b": 0.0}) == SampleRatio(None, mismatch=False)


def test_negative_shares_are_refused() -> None:
    with pytest.raises(ValueError, match="cannot be negative"):
        sample_ratio({}, {"a": -1.0, "b": 2.0})


def test_chance_is_taken_for_a_mismatch_about_once_in_a_thousand() -> None:
    draws = numpy.random.default_rng(20261121).binomial(2_000, 0.5, 5_000).tolist()
    wrong = sum(sample_ratio({"a": a, "b": 2_000 - a}, HALVES).mismatch for a in draws)
    assert wrong <= 15

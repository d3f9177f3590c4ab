"""Tail probabilities against what scipy 1.x computes."""

import math

import pytest

from control.statistics.tails import chi2_tail, kolmogorov_tail, two_sample_tail


@pytest.mark.parametrize(
    ("value", "degrees", "expected"),
    [
        (0.5, 1, 0.47950012218695337),
        (3.84, 1, 0.05004352124870519),
        (9, 9, 0.43727418891386693),
        (27, 9, 0.001398767679796457),
        (60, 9, 1.3406780483959625e-09),
        (150, 63, 4.679451669007613e-09),
    ],
)
def test_chi2_tail_is_scipys(value: float, degrees: int, expected: float) -> None:
    assert chi2_tail(value, degrees) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (0.3, 0.9999906941986655),
        (0.6, 0.8642827790506042),
        (0.9, 0.3927307079406543),
        (1.0, 0.26999967167735456),
        (1.36, 0.049485876755377876),
        (2.0, 0.0006709252557796953),
        (3.0, 3.045995948942526e-08),
    ],
)
def test_kolmogorov_tail_is_scipys(value: float, expected: float) -> None:
    assert kolmogorov_tail(value) == pytest.approx(expected, abs=1e-12, rel=1e-9)


def test_nothing_is_certain_of_nothing() -> None:
    assert (chi2_tail(0, 3), chi2_tail(5, 0), kolmogorov_tail(0)) == (1, 1, 1)
    assert two_sample_tail(0.9, 0, 5) == 1


def test_the_same_distance_is_rarer_in_larger_samples() -> None:
    assert two_sample_tail(0.1, 100, 100) > 0.5 > two_sample_tail(0.1, 1000, 1000) > 0
    assert math.isclose(two_sample_tail(0.1, 200, 300), two_sample_tail(0.1, 300, 200))

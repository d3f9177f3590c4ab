"""PSI and KS: known values, and what chance makes of them."""

import math
import random

import pytest

from control.drift.categories import category_counts
from control.drift.comparison import compare
from control.drift.numeric import counted
from control.drift.points import CategoryCounts


def gauss(n: int, mean: float = 0.0, seed: int = 1) -> list[float]:
    drawn = random.Random(seed)
    return [drawn.gauss(mean, 1) for _ in range(n)]


def test_psi_of_known_shares_is_the_formulas() -> None:
    found = compare(
        category_counts({"a": 500_000, "b": 500_000}), category_counts({"a": 250_000, "b": 750_000})
    )
    assert found is not None
    expected = (0.25 - 0.5) * math.log(0.25 / 0.5) + (0.75 - 0.5) * math.log(0.75 / 0.5)
    assert found.raw_psi == pytest.approx(expected, rel=1e-4)
    assert found.psi == pytest.approx(expected, rel=1e-4)
    assert found.ks is None


def test_ks_of_whole_numbers_is_the_exact_one() -> None:
    found = compare(counted([1, 2, 3, 4] * 100), counted([3, 4, 5, 6] * 100))
    assert found is not None
    assert found.ks == pytest.approx(0.5)


def test_ks_of_shifted_normals_is_near_the_true_one() -> None:
    """2 Φ(0.25) - 1 = 0.1974 for a shift by half a standard deviation."""
    found = compare(counted(gauss(20_000)), counted(gauss(20_000, 0.5, 2)))
    assert found is not None
    assert found.ks is not None
    assert found.ks == pytest.approx(0.1974, abs=0.02)


def test_two_samples_of_one_distribution_have_no_psi_left() -> None:
    found = compare(counted(gauss(300)), counted(gauss(300, seed=2)))
    assert found is not None
    assert found.raw_psi > 0.01
    assert found.psi < 0.05
    assert found.psi_p > 0.01


def test_p_values_of_one_distribution_are_as_often_small_as_they_say() -> None:
    found = [compare(counted(gauss(400, seed=n)), counted(gauss(400, seed=~n))) for n in range(200)]
    small = sum(one is not None and one.psi_p < 0.05 for one in found)
    assert 1 <= small <= 22  # 10 expected


def test_values_above_all_of_the_reference_have_a_bin() -> None:
    found = compare(counted(gauss(2000)), counted([50.0] * 500 + gauss(1500)))
    assert found is not None
    assert found.bins[-1].reference == 0
    assert found.bins[-1].current == 500


def test_what_became_not_finite_is_drift() -> None:
    found = compare(counted(gauss(2000)), counted(gauss(1500, seed=2) + [math.nan] * 500))
    assert found is not None
    assert found.psi > 1
    assert found.bins[-1].name == "not finite"


def test_a_new_category_is_drift() -> None:
    found = compare(
        category_counts({"a": 500, "b": 500}), category_counts({"a": 400, "b": 400, "c": 200})
    )
    assert found is not None
    assert found.psi > 0.5


def test_numbers_are_not_compared_with_names_nor_with_nothing() -> None:
    assert compare(counted([1.0]), category_counts({"1": 1})) is None
    assert compare(counted([]), counted([1.0])) is None
    assert compare(CategoryCounts(), category_counts({"a": 1})) is None


def test_the_lower_bound_of_psi_is_below_the_true_one() -> None:
    """PSI of normals a shift of 0.5 apart is 0.25 in the limit of fine bins."""
    for seed in range(1, 21):
        found = compare(counted(gauss(1000, seed=seed)), counted(gauss(1000, 0.5, ~seed)))
        assert found is not None
        assert found.psi_lower < 0.26

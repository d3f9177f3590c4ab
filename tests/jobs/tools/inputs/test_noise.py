"""Random numbers among data."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jobs.tools.inputs.noise import looks_random
from support.tool_sources import digits_rows


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("draw", "name"),
    [
        (lambda random: random.random((64, 3, 16, 16)), "uniform"),
        (lambda random: random.uniform(-2, 5, (64, 300)), "uniform"),
        (lambda random: random.standard_normal((64, 3, 16, 16)), "normal"),
        (lambda random: random.normal(4, 9, (3000, 1)), "normal"),
    ],
)
def test_independent_draws_are_found(draw: Callable[[Any], Any], name: str, seed: int) -> None:
    assert looks_random(draw(np.random.default_rng(seed))) == name


def test_pictures_are_data() -> None:
    assert looks_random(digits_rows()["IMAGE"]) == ""


def test_standardised_columns_of_measured_values_are_data() -> None:
    from sklearn.datasets import load_breast_cancer, load_diabetes

    for load in (load_breast_cancer, load_diabetes):
        columns = load(return_X_y=True)[0]
        assert looks_random((columns - columns.mean(axis=0)) / columns.std(axis=0)) == ""


def test_integers_constants_and_few_values_are_left_alone() -> None:
    random = np.random.default_rng(0)
    assert looks_random(random.integers(0, 9, (999, 9))) == ""
    assert looks_random(np.ones((999, 9))) == ""
    assert looks_random(random.random((8, 9))) == ""


def test_only_a_part_of_a_very_large_array_is_looked_at() -> None:
    """The rest would be NaN, which no distribution has."""
    array = np.random.default_rng(0).standard_normal((5000, 1000), np.float32)
    array[4500:] = np.nan
    assert looks_random(array) == "normal"

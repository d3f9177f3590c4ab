"""How far answers of two networks are apart."""

import math

import pytest

torch = pytest.importorskip("torch")

from jobs.tools.training.version import largest_gap  # noqa: E402 - after torch is known to be there


def test_the_gap_is_a_share_of_the_largest_value() -> None:
    expected, found = torch.tensor([4.0, 1.0]), torch.tensor([4.0, 2.0])
    assert largest_gap((expected,), (found,)) == 0.25


@pytest.mark.parametrize("at", [0, 1])
def test_nan_in_any_output_is_infinitely_far(at: int) -> None:
    plain = [torch.ones(2), torch.ones(2)]
    wrong = [one.clone() for one in plain]
    wrong[at][0] = math.nan
    assert largest_gap(tuple(plain), tuple(wrong)) == math.inf
    assert largest_gap(tuple(wrong), tuple(wrong)) == math.inf


def test_booleans_are_compared() -> None:
    assert largest_gap((torch.tensor([True]),), (torch.tensor([False]),)) == 1.0


def test_tensors_without_numbers_are_equal() -> None:
    assert largest_gap((torch.ones(0, 2),), (torch.ones(0, 2),)) == 0.0

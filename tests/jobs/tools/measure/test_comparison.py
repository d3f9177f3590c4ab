"""Differences between the outputs of two networks."""

from typing import Any

import numpy as np
import pytest

from jobs.tools.measure.comparison import accuracy, agreement, difference, kind_of, noise_ratio


def test_largest_difference_is_given_as_it_is_and_by_the_output_s_scale() -> None:
    found = difference("Y", np.array([[1.0, 20.0]]), np.array([[3.0, 20.0]]), 0.05)
    assert (found.largest, found.relative, found.outliers) == (2.0, 0.1, 1)


def test_rows_whose_largest_column_moves_are_flips() -> None:
    before, after = np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([[0.0, 1.0], [1.0, 2.0]])
    assert difference("Y", before, after, 1.0).flips == 1


def test_nan_where_there_was_nan_is_no_difference() -> None:
    rows = np.array([[np.nan, 1.0]])
    assert difference("Y", rows, rows.copy(), 0.0).largest == 0.0


@pytest.mark.parametrize("wrong", [np.array([[np.nan, 1.0]]), np.array([1.0, 1.0])])
def test_nan_or_another_shape_is_infinitely_far(wrong: np.ndarray) -> None:
    found = difference("Y", np.array([[1.0, 1.0]]), wrong, 1.0)
    assert (found.largest, found.outliers) == (np.inf, 1)


def test_texts_differ_or_are_the_same() -> None:
    before, after = np.array([["a"], ["b"]], object), np.array([["a"], ["c"]], object)
    assert difference("Y", before, after, 0.0).outliers == 1
    assert difference("Y", before, before, 0.0).largest == 0.0


def test_accuracy_takes_argmax_or_integer_labels() -> None:
    labels = np.array([1, 0])
    assert accuracy(np.array([[0.0, 1.0], [0.0, 1.0]]), labels) == 0.5
    assert accuracy(np.array([1, 0]), labels) == 1.0


def test_agreement_of_values_is_the_coefficient_of_determination() -> None:
    before = np.array([[0.0], [2.0]])
    assert agreement(before, before.copy(), "values") == 1.0
    assert agreement(before, np.array([[1.0], [1.0]]), "values") == 0.0


def test_results_that_are_not_finite_agree_with_nothing() -> None:
    assert agreement(np.ones((1, 2)), np.array([[1.0, np.nan]]), "classes") == 0.0


def test_noise_is_a_share_of_the_output_s_power_and_finite() -> None:
    assert noise_ratio(np.array([2.0]), np.array([1.0])) == 0.25
    assert np.isfinite(noise_ratio(np.array([2.0]), np.array([np.nan])))


def test_matrix_of_floats_is_classes_and_a_column_is_values() -> None:
    assert kind_of(np.ones((3, 4)), None) == "classes"
    assert kind_of(np.ones((3, 1)), None) == "values"
    assert kind_of(np.ones((3, 1)), np.ones(3, int)) == "classes"
    assert kind_of(np.ones((3, 1)), np.arange(3)) == "values"
    assert kind_of(np.ones((3, 1), int), np.arange(3)) == "classes"


@pytest.mark.parametrize(
    ("source", "result"),
    [
        ([[0.2], [0.9], [0.4], [1.0]], [[0.2], [0.4], [0.6], [1.01]]),
        ([-2.0, 3.0, -1.0, 0.5], [-2.0, -0.1, 0.1, 0.4]),
        ([0, 1, 0, 1], [0, 0, 1, 1]),
        ([[False], [True], [False], [True]], [[False], [False], [True], [True]]),
    ],
    ids=["probabilities", "margins", "integers", "booleans"],
)
def test_one_column_has_the_classes_of_its_numbers(source: list[Any], result: list[Any]) -> None:
    before, after, labels = np.array(source), np.array(result), np.array([0, 1, 0, 1])
    assert accuracy(before, labels) == 1.0
    assert accuracy(after, labels, before) == 0.5
    assert agreement(before, after, "classes") == 0.5


def test_a_row_with_nan_has_no_right_class() -> None:
    output = np.array([[np.nan, 0.0], [np.nan, np.nan], [1.0, 0.0]])
    assert accuracy(output, np.zeros(3, int)) == 1 / 3
    assert accuracy(np.array([np.nan, 0.9]), np.array([0, 1])) == 0.5


def test_whole_numbers_that_differ_are_infinitely_far() -> None:
    before, after = np.array([10_000, 9_999]), np.array([10_000, 9_998])
    found = difference("Y", before, after, 0.5)
    assert (found.relative, found.outliers) == (np.inf, 1)
    large = np.array([1 << 60])
    assert difference("Y", large, large + 1, 0.5).outliers == 1
    assert difference("Y", before, before.astype(np.int32), 0.0).relative == 0.0


def test_columns_of_other_sizes_are_noticed_where_there_are_rows_enough() -> None:
    rows = np.ones((8, 2)) * [640.0, 0.5]
    assert difference("Y", rows, rows, 0.0).uneven == 1280.0
    assert difference("Y", rows[:7], rows[:7], 0.0).uneven == 1.0


def test_an_output_without_rows_is_one_value() -> None:
    assert difference("Y", np.array(2.0), np.array(1.0), 0.1).outliers == 1

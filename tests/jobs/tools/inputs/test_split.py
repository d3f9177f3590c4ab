"""Rows to learn from and rows to be judged by."""

import numpy as np

from jobs.tools.inputs.data_file import DataRows
from jobs.tools.inputs.split import split_rows


def rows(count: int) -> DataRows:
    return DataRows({"X": np.arange(count)}, np.arange(count))


def test_no_held_out_row_is_seen_before() -> None:
    split = split_rows(rows(300), samples=50, evaluate=500, seed=1)
    seen = {*split.calibration.inputs["X"], *split.selection.inputs["X"]}
    assert not seen & {*split.held_out.inputs["X"]}
    assert (split.calibration.length, split.selection.length, split.held_out.length) == (
        50, 100, 150,
    )  # fmt: skip


def test_labels_stay_with_their_rows() -> None:
    split = split_rows(rows(100), samples=16, evaluate=20, seed=1)
    assert split.held_out.labels is not None
    assert list(split.held_out.inputs["X"]) == list(split.held_out.labels)


def test_rows_that_calibrate_select_where_few_are_left() -> None:
    split = split_rows(rows(60), samples=30, evaluate=500, seed=1)
    assert list(split.selection.inputs["X"]) == list(split.calibration.inputs["X"])


def test_parts_are_whole_calls_of_a_network_that_fixes_their_rows() -> None:
    split = split_rows(rows(130), samples=50, evaluate=500, seed=1, batch=20)
    lengths = [one.length for one in split]
    assert lengths == [40, 40, 60]
    split = split_rows(rows(130), samples=8, evaluate=8, seed=1, batch=64)
    assert [one.length for one in split] == [64, 64, 64]

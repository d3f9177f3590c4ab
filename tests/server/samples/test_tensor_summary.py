"""What is kept of a tensor: what it is like, never what it says unless that is asked for."""

import json

import ml_dtypes
import numpy as np
import pytest

from server.samples.tensor_summary import LOOKED_AT, MOST_TENSORS, MOST_VALUES, summary_of


def one(array: np.ndarray, values: bool = False) -> dict:
    (found,) = summary_of({"x": array}, values)
    return found


def test_shape_type_and_statistics_are_kept_and_no_value() -> None:
    found = one(np.arange(16, dtype=np.float32).reshape(2, 8))
    assert found == {
        "name": "x",
        "datatype": "FP32",
        "shape": [2, 8],
        "size_bytes": 64,
        "about": {"of": 16, "not_finite": 0, "least": 0.0, "most": 15.0, "mean": 7.5},
    }


def test_few_values_are_not_summed_up_because_that_would_tell_them() -> None:
    assert one(np.array([42.0, 43.0]))["about"] is None


def test_what_is_not_finite_is_counted_and_left_out() -> None:
    about = one(np.array([np.nan, np.inf, *range(6)], np.float64))["about"]
    assert (about["not_finite"], about["least"], about["most"]) == (2, 0.0, 5.0)


def test_of_bytes_only_the_lengths_are_told() -> None:
    found = one(np.array([b"secret"] * 7 + [b"s"], np.object_))
    assert found["about"] == {"of": 8, "shortest_bytes": 1, "longest_bytes": 6}
    assert (found["datatype"], found["size_bytes"]) == ("BYTES", 43)
    assert "secret" not in json.dumps(found)


def test_values_are_the_first_few_where_they_are_asked_for() -> None:
    found = one(np.arange(1000, dtype=np.int32), values=True)
    assert found["values"] == list(range(MOST_VALUES))
    assert found["more"] == 1000 - MOST_VALUES
    text = one(np.array([b"\xff" + b"a" * 1000], np.object_), values=True)["values"]
    assert text == ["\\xff" + "a" * 199]


def test_a_large_tensor_is_looked_at_in_part() -> None:
    assert one(np.zeros((1000, 1000), np.uint8))["about"]["of"] == LOOKED_AT


def test_many_tensors_are_kept_in_part() -> None:
    many = {f"t{number}": np.zeros(1) for number in range(100)}
    assert len(summary_of(many, False)) == MOST_TENSORS


@pytest.mark.parametrize(
    "array",
    [
        np.array(3.5),
        np.zeros((0, 3), np.float32),
        np.ones(9, np.bool_),
        np.ones(9, ml_dtypes.bfloat16),
        np.ones((3, 4), np.float16).T,
        np.array([1, None, "x", b"y"] * 3, np.object_),
        np.array([], np.object_),
    ],
    ids=["scalar", "empty", "bool", "bfloat16", "strided", "mixed objects", "no objects"],
)
@pytest.mark.parametrize("values", [False, True], ids=["redacted", "values"])
def test_any_array_a_model_may_give_can_be_kept(array: np.ndarray, values: bool) -> None:
    import msgpack

    assert msgpack.packb(one(array, values))

"""Which features tensors have, what is copied of them, and what is counted."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from control.drift.categories import hashed
from control.drift.merge import observations
from control.drift.points import MOST_FEATURES, CategoryCounts, VersionDrift
from repository.config.tensors import BY_NAME, Array
from server.drift.counting import VersionCounts
from server.drift.features import MOST_ROWS, copied_tensors, plan_of
from server.signature import Signature, TensorSpec


def spec(name: str, datatype: str, *dims: int, labels: tuple[str, ...] = ()) -> TensorSpec:
    known = BY_NAME[datatype]
    fixed = None if -1 in dims else dims
    return TensorSpec(
        name, datatype, known.dtype, known.itemsize, dims, (-1, *dims), fixed, 0, None,
        labels=labels,
    )  # fmt: skip


def signature(*inputs: TensorSpec, outputs: tuple[TensorSpec, ...] = ()) -> Signature:
    ins, outs = {one.name: one for one in inputs}, {one.name: one for one in outputs}
    return Signature("m", 1, 8, ins, outs, frozenset(ins), False)


def count(of: Signature, tensors: dict[str, Array], labels: str = "", names: bool = False) -> (
    VersionDrift
):  # fmt: skip
    plan = plan_of(of, labels)
    counts = VersionCounts("m", 1, plan, names)
    counts.add(copied_tensors((*plan.inputs, *plan.outputs), tensors))
    found = counts.taken()
    assert found is not None
    return found


def names_of(found: VersionDrift) -> list[str]:
    return [one.name for one in found.features]


def test_elements_of_a_small_tensor_are_features() -> None:
    found = count(signature(spec("x", "FP32", 2, 2)), {"x": np.ones((3, 2, 2), np.float32)})
    assert names_of(found) == ["x[0,0]", "x[0,1]", "x[1,0]", "x[1,1]"]
    assert [observations(one.counts) for one in found.features] == [3] * 4


def test_an_image_has_mean_and_deviation_of_each_channel() -> None:
    images = np.zeros((2, 3, 32, 32), np.uint8)
    found = count(signature(spec("image", "UINT8", 3, 32, 32)), {"image": images})
    assert names_of(found) == [f"image.{w}[{c}]" for c in range(3) for w in ("mean", "std")]


def test_channels_may_come_last() -> None:
    plan = plan_of(signature(spec("image", "FP32", -1, -1, 3)), "")
    assert len(plan.inputs[0].features) == 6
    assert plan.inputs[0].channel == 2


def test_a_large_tensor_has_a_summary() -> None:
    found = count(signature(spec("x", "FP32", 1000)), {"x": np.ones((1, 1000), np.float32)})
    assert names_of(found) == ["x.mean", "x.std", "x.min", "x.max"]


def test_one_of_any_length_has_its_size_too() -> None:
    found = count(signature(spec("ids", "INT64", -1)), {"ids": np.arange(7).reshape(1, 7)})
    assert names_of(found)[-1] == "ids.size"


def test_features_are_bounded_and_the_rest_is_told() -> None:
    plan = plan_of(signature(spec("a", "FP32", 50), spec("b", "FP32", 50)), "")
    assert sum(len(one.features) for one in plan.inputs) == MOST_FEATURES
    assert plan.left_out == 36


def test_rows_of_a_large_request_are_few_and_spread() -> None:
    rows = np.arange(100, dtype=np.float32).reshape(100, 1)
    found = count(signature(spec("x", "FP32", 1)), {"x": rows})
    assert 4 <= observations(found.features[0].counts) <= MOST_ROWS


def test_scores_give_the_label_of_the_label_file_and_its_confidence() -> None:
    of = signature(spec("x", "FP32", 1), outputs=(spec("y", "FP32", 2, labels=("cat", "dog")),))
    scores = np.array([[0.1, 0.9], [0.8, 0.2]], np.float32)
    found = count(of, {"x": np.ones((2, 1), np.float32), "y": scores})
    label = next(one for one in found.features if one.role == "label")
    assert isinstance(label.counts, CategoryCounts)
    assert label.counts.counts == {"cat": 1, "dog": 1}
    confidence = next(one for one in found.features if one.role == "confidence")
    assert observations(confidence.counts) == 2


def test_whole_numbers_of_an_output_are_labels() -> None:
    of = signature(spec("x", "FP32", 1), outputs=(spec("y", "INT64", 1),))
    found = count(of, {"x": np.ones((3, 1), np.float32), "y": np.array([[4], [4], [2]])})
    label = next(one for one in found.features if one.role == "label")
    assert isinstance(label.counts, CategoryCounts)
    assert label.counts.counts == {"2": 1, "4": 2}


def test_an_operator_names_the_label_or_says_there_is_none() -> None:
    outputs = (spec("a", "FP32", 10), spec("b", "INT32", 1))
    plan = plan_of(signature(spec("x", "FP32", 1), outputs=outputs), "a")
    assert [one.tensor for one in plan.outputs if one.role == "label"] == ["a"]
    plan = plan_of(signature(spec("x", "FP32", 1), outputs=outputs), "-")
    assert not [one for one in plan.outputs if one.role == "label"]


def test_strings_are_hashed_unless_names_are_kept() -> None:
    of = signature(spec("colour", "BYTES", 1))
    given = {"colour": np.array([[b"red"]], object)}
    kept = {name: count(of, given, names=name).features[0].counts for name in (False, True)}
    assert kept[False] == CategoryCounts({hashed("red"): 1})
    assert kept[True] == CategoryCounts({"red": 1})
    assert "colour.length" in names_of(count(of, given))


@given(
    st.sampled_from([name for name in BY_NAME if name != "BYTES"]),
    st.lists(st.integers(0, 5), min_size=0, max_size=3),
    st.integers(0, 20),
)
def test_a_tensor_of_any_shape_and_type_is_counted_or_left_alone(
    datatype: str, dims: list[int], rows: int
) -> None:
    of = signature(spec("x", datatype, *dims), outputs=(spec("y", datatype, *dims),))
    array = np.zeros((rows, *dims), BY_NAME[datatype].dtype)
    plan = plan_of(of, "")
    counts = VersionCounts("m", 1, plan, False)
    counts.add(copied_tensors((*plan.inputs, *plan.outputs), {"x": array, "y": array}))
    found = counts.taken()
    assert found is not None
    assert len(found.features) <= MOST_FEATURES


def test_a_float64_beyond_all_float32_is_not_finite() -> None:
    found = count(signature(spec("x", "FP64", 1)), {"x": np.array([[1e300]])})
    assert observations(found.features[0].counts) == 1


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_scores_that_are_no_numbers_have_no_label(value: float) -> None:
    of = signature(spec("x", "FP32", 1), outputs=(spec("y", "FP32", 3),))
    bad = np.full((1, 3), value, np.float32)
    found = count(of, {"x": np.ones((1, 1), np.float32), "y": bad})
    assert not [one for one in found.features if one.role == "label"]


def test_labels_that_are_texts_are_hashed_one_for_a_row() -> None:
    of = signature(spec("x", "FP32", 1), outputs=(spec("answer", "BYTES", 1),))
    texts = np.array([[b"cat"], [b"dog"], [b"cat" * 9000]], np.object_)
    found = count(of, {"answer": texts})
    (label,) = [one for one in found.features if one.role == "label"]
    assert isinstance(label.counts, CategoryCounts)
    assert {hashed("cat"), hashed("dog")} < set(label.counts.counts)
    assert all(len(name) == len(hashed("")) for name in label.counts.counts)


def test_scores_of_each_pixel_are_no_labels() -> None:
    pixels = spec("mask", "FP32", 512, 512, labels=("a", "b"))
    of = signature(spec("x", "FP32", 1), outputs=(pixels,))
    for labels in ("", "mask"):
        assert all(plan.role != "label" for plan in plan_of(of, labels).outputs)

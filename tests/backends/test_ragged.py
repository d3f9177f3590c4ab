"""Ragged batches: what a model is told of its requests' shapes, and who gets what back."""

from collections.abc import Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from backends.batch_inputs import BatchInputs
from backends.errors import FaultyModel
from backends.ragged import RaggedInstance
from backends.seam import Tensors
from repository.config.tensors import Array
from support.runtime import batch_of, make_version, member

CONFIG = """
max_batch_size: 64
input { name: "X" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }
batch_input {
  kind: BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO target_name: "ENDS" data_type: TYPE_INT32
  source_input: "X"
}
output { name: "SUM" data_type: TYPE_FP32 dims: [ 1 ] }
output { name: "TWICE" data_type: TYPE_FP32 dims: [ -1 ] }
batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "TWICE" source_input: "X" }
"""
"""Of a model that answers each request with the sum of its numbers, and with each of them twice."""


class SumsOfRequests(RaggedInstance):
    """What such a model computes, from its flat inputs alone."""

    calls = 0

    def run(self, inputs: Tensors, wanted: tuple[str, ...]) -> Mapping[str, Array]:
        self.calls += 1
        flat, ends = inputs["X"], inputs["ENDS"]
        assert (flat.ndim, ends.dtype) == (1, np.int32)
        parts = [flat[start:stop].sum() for start, stop in pairwise(ends)]
        found = {"SUM": np.array(parts, np.float32)[:, None], "TWICE": flat * 2}
        return {name: found[name] for name in wanted}


def numbers(*values: float) -> Array:
    return np.array([values], np.float32)


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SumsOfRequests:
    return SumsOfRequests(make_version(tmp_path_factory.mktemp("m"), CONFIG), "cpu", 1)


@given(st.lists(st.lists(st.integers(-1000, 1000), max_size=9), min_size=1, max_size=20))
def test_each_request_of_any_length_gets_its_own_part(
    model: SumsOfRequests, sent: list[list[int]]
) -> None:
    before = model.calls
    results = model.execute(batch_of(*[member(X=numbers(*one)) for one in sent])).results
    assert model.calls == before + 1
    for one, result in zip(sent, results, strict=True):
        assert isinstance(result, Mapping)
        assert result["SUM"].tolist() == [[sum(one)]]
        np.testing.assert_array_equal(result["TWICE"], numbers(*one) * 2)


def test_members_that_ask_for_different_outputs_share_a_ragged_batch(
    model: SumsOfRequests,
) -> None:
    sent = [member(("SUM",), X=numbers(1, 2)), member(("TWICE",), X=numbers(3))]
    first, second = model.execute(batch_of(*sent)).results
    assert isinstance(first, Mapping)
    assert first["SUM"].tolist() == [[3]]
    assert isinstance(second, Mapping)
    assert second["TWICE"].tolist() == [[6]]


def test_an_output_of_the_wrong_size_answers_nobody(tmp_path: Path) -> None:
    class Short(SumsOfRequests):
        def run(self, inputs: Tensors, wanted: tuple[str, ...]) -> Mapping[str, Array]:
            return {name: one[:1] for name, one in super().run(inputs, wanted).items()}

    short = Short(make_version(tmp_path, CONFIG), "cpu", 1)
    with pytest.raises(FaultyModel, match=r"'TWICE' was returned with 1 elements, but .* take 3"):
        short.execute(batch_of(member(("TWICE",), X=numbers(1, 2)), member(X=numbers(3))))


KINDS: list[tuple[str, list[Any]]] = [
    ("BATCH_ELEMENT_COUNT", [6, 8]),
    ("BATCH_ACCUMULATED_ELEMENT_COUNT", [6, 14]),
    ("BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO", [0, 6, 14]),
    ("BATCH_MAX_ELEMENT_COUNT_AS_SHAPE", [0] * 8),
    ("BATCH_ITEM_SHAPE", [[3, 2], [2, 2], [2, 2]]),
    ("BATCH_ITEM_SHAPE_FLATTEN", [3, 2, 2, 2, 2, 2]),
]


@pytest.mark.parametrize("data_type", ["INT32", "FP32"])
@pytest.mark.parametrize(("kind", "expected"), KINDS)
def test_each_kind_of_batch_input_says_of_the_shapes_what_triton_says(
    kind: str, expected: list[Any], data_type: str, tmp_path: Path
) -> None:
    text = f"""max_batch_size: 8
    input {{ name: "X" data_type: TYPE_FP32 dims: [ -1, 2 ] allow_ragged_batch: true }}
    batch_input {{ kind: {kind} target_name: [ "A", "B" ] data_type: TYPE_{data_type}
      source_input: "X" }}"""
    config = make_version(tmp_path, text).config
    shapes = ((1, 3, 2), (2, 2, 2))
    batch = batch_of(*[member(X=np.ones(shape, np.float32)) for shape in shapes])

    values = BatchInputs(config).values(batch)

    assert list(values) == ["A", "B"]
    assert values["A"].dtype == {"INT32": np.int32, "FP32": np.float32}[data_type]
    assert values["A"].tolist() == expected


def test_shapes_are_counted_as_the_model_means_them(tmp_path: Path) -> None:
    text = """max_batch_size: 8
    input { name: "X" data_type: TYPE_FP32 dims: [ -1, 2, 3 ] reshape { shape: [ -1, 6 ] } }
    batch_input { kind: BATCH_ITEM_SHAPE target_name: "S" data_type: TYPE_INT32 source_input: "X" }
    """
    batch = batch_of(member(X=np.ones((1, 4, 2, 3), np.float32)))
    values = BatchInputs(make_version(tmp_path, text).config).values(batch)
    assert values["S"].tolist() == [[4, 6]]

"""Stacking and splitting: everybody gets the rows of their own, or nobody gets any."""

from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest

from backends.errors import FaultyModel
from backends.seam import Tensors
from backends.stacked import StackedInstance
from repository.config.tensors import Array
from support.runtime import batch_of, make_version, member

CONFIG = """
max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "Z" data_type: TYPE_FP32 dims: [ 1 ] }
"""


class Computed(StackedInstance):
    """An instance whose runtime is a plain function."""

    compute: Callable[[Tensors], dict[str, Array]] = staticmethod(
        lambda inputs: {"Y": inputs["X"] * 2, "Z": inputs["X"].sum(axis=1, keepdims=True)}
    )
    calls = 0

    def run(self, inputs: Tensors, wanted: tuple[str, ...]) -> Mapping[str, Array]:
        self.calls += 1
        outputs = self.compute(inputs)
        return {name: outputs[name] for name in wanted}


def rows(*values: float) -> Array:
    return np.array([[value, value + 0.5] for value in values], np.float32)


@pytest.fixture
def instance(tmp_path: Path) -> Computed:
    return Computed(make_version(tmp_path, CONFIG), "cpu", 1)


def test_every_member_gets_its_own_rows(instance: Computed) -> None:
    sent = [rows(1, 2), rows(3), rows(4, 5, 6)]

    outcome = instance.execute(batch_of(*[member(X=array) for array in sent]))

    assert instance.calls == 1
    for array, result in zip(sent, outcome.results, strict=True):
        assert isinstance(result, Mapping)
        np.testing.assert_array_equal(result["Y"], array * 2)
        np.testing.assert_array_equal(result["Z"], array.sum(axis=1, keepdims=True))


def test_batch_of_one_is_not_copied(instance: Computed) -> None:
    sent = rows(1)
    instance.compute = lambda inputs: {"Y": inputs["X"], "Z": inputs["X"][:, :1]}

    (result,) = instance.execute(batch_of(member(X=sent))).results

    assert isinstance(result, Mapping)
    assert result["Y"] is sent


def test_wrong_leading_dimension_names_the_model_and_answers_nobody(instance: Computed) -> None:
    instance.compute = lambda inputs: {"Y": inputs["X"][:-1], "Z": inputs["X"][:, :1]}

    with pytest.raises(FaultyModel) as caught:
        instance.execute(batch_of(member(X=rows(1, 2)), member(X=rows(3, 4))))

    assert "model 'm' version 1" in str(caught.value)
    assert "output 'Y' was returned with shape [3,2] for 4 rows" in str(caught.value)


def test_wrong_data_type_names_both_types(instance: Computed) -> None:
    instance.compute = lambda inputs: {"Y": inputs["X"].astype(np.float64), "Z": inputs["X"]}

    with pytest.raises(FaultyModel, match="'Y' was returned as FP64, but its config says FP32"):
        instance.execute(batch_of(member(X=rows(1))))


def test_reshape_shows_the_runtime_other_dims(tmp_path: Path) -> None:
    config = """
    max_batch_size: 4
    input { name: "X" data_type: TYPE_FP32 dims: [ 2, 3 ] reshape { shape: [ 6 ] } }
    output { name: "Y" data_type: TYPE_FP32 dims: [ 1 ] reshape { shape: [ ] } }
    """
    seen = []

    def total(inputs: Tensors) -> dict[str, Array]:
        seen.append(inputs["X"].shape)
        return {"Y": inputs["X"].sum(axis=1)}

    instance = Computed(make_version(tmp_path, config), "cpu", 1)
    instance.compute = total
    (result,) = instance.execute(batch_of(member(X=np.ones((2, 2, 3), np.float32)))).results

    assert seen == [(2, 6)]
    assert isinstance(result, Mapping)
    assert result["Y"].tolist() == [[6.0], [6.0]]


def test_variable_dims_keep_their_size_across_a_reshape(tmp_path: Path) -> None:
    config = """
    max_batch_size: 4
    input { name: "X" data_type: TYPE_FP32 dims: [ -1, 4 ] reshape { shape: [ -1, 2, 2 ] } }
    output { name: "Y" data_type: TYPE_FP32 dims: [ -1, 4 ] reshape { shape: [ -1, 2, 2 ] } }
    """
    instance = Computed(make_version(tmp_path, config), "cpu", 1)
    instance.compute = lambda inputs: {"Y": inputs["X"]}

    (result,) = instance.execute(batch_of(member(X=np.ones((3, 5, 4), np.float32)))).results

    assert isinstance(result, Mapping)
    assert result["Y"].shape == (3, 5, 4)


def test_output_that_does_not_fit_its_reshape_is_faulty(tmp_path: Path) -> None:
    config = """
    max_batch_size: 4
    input { name: "X" data_type: TYPE_FP32 dims: [ 2 ] }
    output { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] reshape { shape: [ 2, 1 ] } }
    """
    instance = Computed(make_version(tmp_path, config), "cpu", 1)
    instance.compute = lambda inputs: {"Y": inputs["X"]}

    with pytest.raises(FaultyModel, match="do not fit the reshape"):
        instance.execute(batch_of(member(X=rows(1))))


@pytest.mark.parametrize("dims", ["1", "1, 1", "-1, 1"])
def test_scalar_output_without_a_batch_dimension_has_the_shape_of_the_config(
    tmp_path: Path, dims: str
) -> None:
    config = f"""
    input {{ name: "X" data_type: TYPE_FP32 dims: [ 1, 2 ] }}
    output {{ name: "Y" data_type: TYPE_FP32 dims: [ {dims} ] }}
    """
    instance = Computed(make_version(tmp_path, config), "cpu", 1)
    instance.compute = lambda inputs: {"Y": np.asarray(inputs["X"].sum())}

    (result,) = instance.execute(batch_of(member(X=rows(1)), batched=False)).results

    assert isinstance(result, Mapping)
    assert result["Y"].shape == (1,) * len(dims.split(","))
    assert result["Y"].item() == 2.5

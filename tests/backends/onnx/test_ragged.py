"""Ragged batches in real ONNX graphs: completed, held against the file, and run."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import pytest
from onnx import TensorProto, helper

from backends.errors import LoadFailed
from backends.onnx.backend import OnnxRuntime
from backends.ragged import RaggedInstance
from repository.model import ModelVersion
from support.runtime import CPU, batch_of, make_version, member, save_graph, with_config

CONFIG = """
input { name: "x" allow_ragged_batch: true }
batch_input { kind: BATCH_ACCUMULATED_ELEMENT_COUNT target_name: "ends" source_input: "x" }
output { name: "y" dims: [ -1 ] }
output { name: "last" }
batch_output { kind: BATCH_SCATTER_WITH_INPUT_SHAPE target_name: "y" source_input: "x" }
dynamic_batching { }
"""


def save_last_elements(path: Path, x: Sequence[object] = ("N",), ends: int = TensorProto.INT32):
    """A graph over flat x: y is -x, and `last` the last element of every request."""
    value = helper.make_tensor_value_info
    one = helper.make_tensor("one", TensorProto.INT32, [1], [1])
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("Neg", ["x"], ["y"]),
        helper.make_node("Sub", ["ends", "one"], ["at"]),
        helper.make_node("Gather", ["x", "at"], ["flat"]),
        helper.make_node("Unsqueeze", ["flat", "axis"], ["last"]),
    ]
    inputs = [value("x", TensorProto.FLOAT, x), value("ends", ends, ["B"])]
    outputs = [value("y", TensorProto.FLOAT, x), value("last", TensorProto.FLOAT, ["B", 1])]
    save_graph(path, helper.make_graph(nodes, "g", inputs, outputs, [one, axis]))


@pytest.fixture
def version(tmp_path: Path) -> ModelVersion:
    made = make_version(tmp_path, CONFIG)
    save_last_elements(made.path / "model.onnx")
    return made


def test_a_ragged_config_is_completed_from_the_graph(version: ModelVersion) -> None:
    config = OnnxRuntime().complete(version, 4)
    assert config.max_batch_size == 4
    assert list(config.input[0].dims) == [-1]
    assert (
        config.batch_input[0].data_type
        == config.batch_input[0]
        .DESCRIPTOR.fields_by_name["data_type"]
        .enum_type.values_by_name["TYPE_INT32"]
        .number
    )
    assert [list(one.dims) for one in config.output] == [[-1], [1]]


def test_requests_of_different_lengths_run_at_once(version: ModelVersion) -> None:
    completed = with_config(version, OnnxRuntime().complete(version, 4))
    (instance,) = OnnxRuntime().load(completed, CPU, 1).instances
    assert isinstance(instance, RaggedInstance)
    sent = [np.array([one], np.float32) for one in ([1, 2, 3], [4], [5, 6])]

    results = instance.execute(batch_of(*[member(x=one) for one in sent])).results

    for one, result in zip(sent, results, strict=True):
        assert isinstance(result, Mapping)
        np.testing.assert_array_equal(result["y"], -one)
        assert result["last"].tolist() == [[one[0, -1]]]


def test_an_input_that_is_not_flat_is_refused_in_tritons_words(version: ModelVersion) -> None:
    save_last_elements(version.path / "model.onnx", x=("N", 4))
    text = (
        "unable to load model 'm', configuration expects model provides input with shape [-1]  "
        "for ragged input 'x', model provides [-1,4]"
    )
    with pytest.raises(LoadFailed) as caught:
        OnnxRuntime().complete(version, 4)
    assert text in str(caught.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (("ends", "gone"), "batch_input target 'gone' is not in model.onnx; its inputs are: x (F"),
        (("BATCH_ACCUMULATED_ELEMENT_COUNT", "BATCH_ITEM_SHAPE"), "has 2 dimensions, but model.o"),
        (('source_input: "x"', 'data_type: TYPE_FP32 source_input: "x"'), "but model.onnx has IN"),
    ],
)
def test_a_batch_input_that_the_graph_does_not_take_is_refused(
    change: tuple[str, str], says: str, tmp_path: Path
) -> None:
    version = make_version(tmp_path, CONFIG.replace(*change, 1))
    save_last_elements(version.path / "model.onnx")
    with pytest.raises(LoadFailed) as caught:
        OnnxRuntime().complete(version, 4)
    assert says in str(caught.value)

"""What a model.onnx completes of a config, and what of it may not be contradicted."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from backends.errors import LoadFailed
from backends.onnx.backend import OnnxRuntime
from support.runtime import CPU, make_version, save_graph, save_unary, with_config


def test_lone_model_gets_names_types_dims_and_batching(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx", shape=("N", 3, "W"))

    config = OnnxRuntime().complete(version, 4)

    assert config.backend == "onnxruntime"
    assert config.default_model_filename == "model.onnx"
    assert config.max_batch_size == 4
    assert config.HasField("dynamic_batching")
    assert (config.input[0].name, list(config.input[0].dims)) == ("X", [3, -1])
    assert (config.output[0].name, list(config.output[0].dims)) == ("Y", [3, -1])


def test_fixed_first_dimension_means_no_batching(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx", shape=(1, 3))

    config = OnnxRuntime().complete(version, 4)

    assert config.max_batch_size == 0
    assert not config.HasField("dynamic_batching")
    assert list(config.input[0].dims) == [1, 3]


def test_dims_written_in_full_mean_no_batching(tmp_path: Path) -> None:
    version = make_version(tmp_path, 'input { name: "X" data_type: TYPE_FP32 dims: [ -1, 4 ] }')
    save_unary(version.path / "model.onnx")

    config = OnnxRuntime().complete(version, 4)

    assert config.max_batch_size == 0
    assert list(config.output[0].dims) == [-1, 4]


def test_dims_written_without_the_batch_mean_batching(tmp_path: Path) -> None:
    version = make_version(tmp_path, 'input { name: "X" dims: [ 4 ] }')
    save_unary(version.path / "model.onnx")

    assert OnnxRuntime().complete(version, 4).max_batch_size == 4


def test_chosen_scheduler_and_batch_size_are_kept(tmp_path: Path) -> None:
    version = make_version(tmp_path, "max_batch_size: 16 sequence_batching {}")
    save_unary(version.path / "model.onnx")

    config = OnnxRuntime().complete(version, 4)

    assert config.max_batch_size == 16
    assert config.WhichOneof("scheduling_choice") == "sequence_batching"


def test_control_inputs_are_the_schedulers_and_not_listed(tmp_path: Path) -> None:
    config = """
    sequence_batching { control_input { name: "START" control {
      kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } } }
    """
    version = make_version(tmp_path, config)
    pair = [
        helper.make_tensor_value_info(name, TensorProto.INT32, ("N", 1)) for name in ("X", "START")
    ]
    output = helper.make_tensor_value_info("Y", TensorProto.INT32, ("N", 1))
    node = helper.make_node("Add", ["X", "START"], ["Y"])
    save_graph(version.path / "model.onnx", helper.make_graph([node], "g", pair, [output]))

    assert [tensor.name for tensor in OnnxRuntime().complete(version, 4).input] == ["X"]


def test_inputs_with_initialisers_are_not_asked_for(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    weight = numpy_helper.from_array(np.ones(4, np.float32), "W")
    both = [
        helper.make_tensor_value_info("X", TensorProto.FLOAT, ("N", 4)),
        helper.make_tensor_value_info("W", TensorProto.FLOAT, (4,)),
    ]
    output = helper.make_tensor_value_info("Y", TensorProto.FLOAT, ("N", 4))
    node = helper.make_node("Mul", ["X", "W"], ["Y"])
    graph = helper.make_graph([node], "g", both, [output], [weight])
    save_graph(version.path / "model.onnx", graph)

    config = OnnxRuntime().complete(version, 4)

    assert [tensor.name for tensor in config.input] == ["X"]
    assert config.max_batch_size == 4


@pytest.mark.parametrize(
    ("config", "complaint"),
    [
        (
            'input { name: "X" data_type: TYPE_INT32 dims: [ 4 ] }',
            "input 'X' data_type is TYPE_INT32, but model.onnx has FP32",
        ),
        (
            'max_batch_size: 2 input { name: "X" dims: [ 5 ] }',
            r"input 'X' of model.onnx has shape \[4\] behind the batch dimension, "
            r"which dims leave out, but dims is \[5\]",
        ),
        (
            'output { name: "Q" }',
            r"output 'Q' is not in model.onnx; its outputs are: Y \(FP32 \[-1,4\]\)",
        ),
        ('default_model_filename: "../../x.onnx"', "leads out of the version's folder"),
        ('default_model_filename: "other.onnx"', "no other.onnx in folder 1/"),
    ],
)
def test_config_that_contradicts_the_model_is_refused(
    tmp_path: Path, config: str, complaint: str
) -> None:
    version = make_version(tmp_path, config)
    save_unary(version.path / "model.onnx")

    with pytest.raises(LoadFailed, match=f"^model 'm' version 1: .*{complaint}"):
        OnnxRuntime().complete(version, 4)


def test_batching_over_a_fixed_dimension_is_refused_with_the_remedy(tmp_path: Path) -> None:
    version = make_version(tmp_path, "max_batch_size: 8")
    save_unary(version.path / "model.onnx", shape=(1, 4))

    with pytest.raises(LoadFailed, match=r"no variable first dimension in 'X' .*max_batch_size: 0"):
        OnnxRuntime().complete(version, 4)


def test_outputs_that_are_no_tensors_are_refused_with_the_remedy(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    tensor = helper.make_tensor_value_info("X", TensorProto.FLOAT, ("N", 2))
    sequence = helper.make_tensor_sequence_value_info("Y", TensorProto.FLOAT, None)
    node = helper.make_node("SequenceConstruct", ["X"], ["Y"])
    save_graph(version.path / "model.onnx", helper.make_graph([node], "g", [tensor], [sequence]))

    with pytest.raises(LoadFailed, match=r"output 'Y' of model.onnx is a sequence, not a tensor"):
        OnnxRuntime().complete(version, 4)


def kept_at(location: str) -> TensorProto:
    """A tensor of four numbers whose bytes are at `location`."""
    tensor = numpy_helper.from_array(np.zeros(4, np.float32), "W")
    onnx.external_data_helper.set_external_data(tensor, location)
    tensor.ClearField("raw_data")
    return tensor


@pytest.mark.parametrize("part", ["sparse values", "sparse indices", "function", "training"])
def test_weights_outside_are_refused_wherever_a_graph_may_name_them(
    tmp_path: Path, part: str
) -> None:
    version = make_version(tmp_path)
    save_unary(version.path / "model.onnx")
    model = onnx.load(version.path / "model.onnx")
    outside = kept_at("../../secret")
    inside = TensorProto(name="W", dims=[4], data_type=TensorProto.FLOAT)
    if part.startswith("sparse"):
        pair = (outside, inside) if part == "sparse values" else (inside, outside)
        sparse = onnx.SparseTensorProto(values=pair[0], indices=pair[1], dims=[4])
        model.graph.sparse_initializer.append(sparse)
    elif part == "function":
        default = onnx.AttributeProto(name="value", type=onnx.AttributeProto.TENSOR, t=outside)
        model.functions.append(onnx.FunctionProto(name="f", attribute_proto=[default]))
    else:
        graph = onnx.GraphProto(initializer=[outside])
        model.training_info.append(onnx.TrainingInfoProto(initialization=graph))
    (version.path / "model.onnx").write_bytes(model.SerializeToString())

    with pytest.raises(LoadFailed, match="leads out of the version's folder"):
        OnnxRuntime().complete(version, 4)


@pytest.mark.parametrize(
    ("location", "says"),
    [("*/_ORT_MEM_ADDR_/*", "at a memory address"), (".hidden/w", "'.hidden/w' is hidden")],
)
def test_weights_at_an_address_or_in_a_hidden_file_are_refused(
    tmp_path: Path, location: str, says: str
) -> None:
    version = make_version(tmp_path)
    (version.path / location).parent.mkdir(parents=True)
    (version.path / location).write_bytes(bytes(16))
    save_unary(version.path / "model.onnx")
    model = onnx.load(version.path / "model.onnx")
    model.graph.initializer.append(kept_at(location))
    (version.path / "model.onnx").write_bytes(model.SerializeToString())

    with pytest.raises(LoadFailed, match=says):
        OnnxRuntime().complete(version, 4)


def test_weights_outside_the_version_folder_are_refused(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    (tmp_path / "secret").write_bytes(bytes(16))
    weight = numpy_helper.from_array(np.zeros(4, np.float32), "W")
    onnx.external_data_helper.set_external_data(weight, "../../secret")
    weight.ClearField("raw_data")
    x = helper.make_tensor_value_info("X", TensorProto.FLOAT, ("N", 4))
    y = helper.make_tensor_value_info("Y", TensorProto.FLOAT, ("N", 4))
    node = helper.make_node("Add", ["X", "W"], ["Y"])
    save_graph(version.path / "model.onnx", helper.make_graph([node], "g", [x], [y], [weight]))

    with pytest.raises(LoadFailed, match="leads out of the version's folder"):
        OnnxRuntime().complete(version, 4)
    with pytest.raises(LoadFailed, match="escapes model directory"):
        OnnxRuntime().load(version, CPU, 1)


def test_a_name_of_another_format_changes_nothing(tmp_path: Path) -> None:
    """onnx reads JSON and text by the file's name, onnxruntime its own format; both could differ
    from what the other reads."""
    for name in ("model.json", "model.textproto", "model.ort"):
        version = make_version(tmp_path / name, f'default_model_filename: "{name}"')
        save_unary(version.path / name)
        config = OnnxRuntime().complete(version, 4)
        OnnxRuntime().load(with_config(version, config), CPU, 1)

        (version.path / name).write_text('{"graph": {"output": [{"name": "Y"}]}}')
        with pytest.raises(LoadFailed, match="is not an ONNX model"):
            OnnxRuntime().complete(version, 4)


def save_calls(path: Path, calls: int, functions: int, circle: bool = False) -> None:
    """A graph of one call, of functions that each call the one before it `calls` times."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("f", 1)]
    first = helper.make_node("Relu", ["0"], ["1"])
    if circle:
        first = helper.make_node(f"f{functions - 1}", ["0"], ["1"], domain="f")
    made = [helper.make_function("f", "f0", ["0"], ["1"], [first], opsets)]
    for number in range(1, functions):
        nodes = [
            helper.make_node(f"f{number - 1}", [f"{at}"], [f"{at + 1}"], domain="f")
            for at in range(calls)
        ]
        made.append(helper.make_function("f", f"f{number}", ["0"], [f"{calls}"], nodes, opsets))
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ("N", 1)) for name in "XY"]
    node = helper.make_node(f"f{functions - 1}", ["X"], ["Y"], domain="f")
    graph = helper.make_graph([node], "g", values[:1], values[1:])
    model = helper.make_model(graph, opset_imports=opsets, functions=made, ir_version=10)
    onnx.save(model, path)


@pytest.mark.parametrize(
    ("calls", "functions", "circle", "reason"),
    [
        (1, 66, False, "more than 64 deep"),
        (10, 30, False, "become 2.111e.29 nodes; at most 100000"),
        (1, 3, True, "in a circle"),
    ],
)
def test_functions_that_become_too_much_are_refused(
    tmp_path: Path, calls: int, functions: int, circle: bool, reason: str
) -> None:
    """Written out, 3,000 of the first end the process, and the second never ends."""
    version = make_version(tmp_path)
    save_calls(version.path / "model.onnx", calls, functions, circle)

    with pytest.raises(LoadFailed, match=reason):
        OnnxRuntime().complete(version, 4)


def test_functions_as_exporters_write_them_are_served(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    save_calls(version.path / "model.onnx", calls=2, functions=4)

    config = OnnxRuntime().complete(version, 4)

    assert OnnxRuntime().load(with_config(version, config), CPU, 1).instances

"""Names of layers, and how many became int8."""

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from control.jobs.specs.quantise import QuantiseSpec
from jobs.tools.quantise.layers import int8_layers, layers_of, name_nodes
from jobs.tools.quantise.quantisers import Quantiser
from jobs.tools.quantise.run import _quantised_layers
from jobs.tools.work import WorkRefused


def network_of(*names: str) -> onnx.ModelProto:
    """Products by weights, one after the other, and a convolution's worth of nothing else."""
    tensors = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, ["rows", 32]) for name in ("0", "Y")
    ]
    places = [str(at) for at in range(len(names))] + ["Y"]
    nodes = [
        helper.make_node("MatMul", [places[at], f"w{at}"], [places[at + 1]], name=name)
        for at, name in enumerate(names)
    ]
    weights = [
        numpy_helper.from_array(np.ones((32, 32), np.float32), f"w{at}") for at in range(len(names))
    ]
    graph = helper.make_graph(nodes, "products", tensors[:1], tensors[1:], weights)
    return helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=onnx.IR_VERSION_2023_5_5
    )


def test_nodes_without_a_name_or_with_another_s_get_their_own() -> None:
    network = network_of("", "a", "", "a", "MatMul_2")
    assert name_nodes(network)
    assert layers_of(network) == ["MatMul_0", "a", "MatMul_2_", "a_3", "MatMul_2"]
    assert not name_nodes(network)


def test_layers_that_compute_in_int8_are_counted(tmp_path: Path) -> None:
    source, result = tmp_path / "source.onnx", tmp_path / "result.onnx"
    onnx.save(network_of("a", "b", "c"), source)
    quantize_dynamic(source, result, nodes_to_exclude=["b"], weight_type=QuantType.QInt8)
    assert int8_layers(onnx.load(source)) == 0
    assert int8_layers(onnx.load(result)) == 2


def test_a_float_operator_between_dequantised_operands_is_one() -> None:
    nodes = [
        helper.make_node("DequantizeLinear", [f"{name}_q", "scale"], [name]) for name in ("x", "w")
    ]
    both = [*nodes, helper.make_node("Conv", ["x", "w", "bias"], ["y"])]
    one = [nodes[1], helper.make_node("Conv", ["x", "w"], ["y"])]
    graphs = [helper.make_graph(each, "g", [], []) for each in (both, one)]
    assert [int8_layers(helper.make_model(each)) for each in graphs] == [1, 0]


def test_a_method_that_makes_nothing_int8_is_refused_with_what_would(tmp_path: Path) -> None:
    spec = QuantiseSpec(model="m", version=1, method="dynamic", exclude=("a", "b"))
    onnx.save(network_of("a", "b"), tmp_path / "source.onnx")
    quantiser = Quantiser(tmp_path / "source.onnx", spec, False, None)
    result = quantiser.write(tmp_path / "result.onnx")
    with pytest.raises(WorkRefused, match=r"'dynamic' turns none of its 2 layers .* \(a, b\)"):
        _quantised_layers(spec, quantiser, ["a", "b"], result)

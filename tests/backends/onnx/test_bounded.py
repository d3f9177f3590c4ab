"""Which graphs cost what the shapes of their inputs say, whatever the values are."""

from pathlib import Path

import pytest
from google.protobuf import text_format
from onnx import NodeProto, TensorProto, helper, save
from tritonclient.grpc import model_config_pb2 as pb

from backends.onnx.bounded import MOST_NODES, is_bounded

FIXED = 'input { name: "X" data_type: TYPE_FP32 dims: [ 4 ] }'


def bounded(tmp_path: Path, *nodes: NodeProto, config: str = FIXED, cut: int = 0) -> bool:
    x, y = (helper.make_tensor_value_info(name, TensorProto.FLOAT, ["b", 4]) for name in "XY")
    weights = helper.make_tensor("W", TensorProto.FLOAT, [4, 4], [0.0] * 16)
    graph = helper.make_graph(nodes, "g", [x], [y], initializer=[weights])
    path = tmp_path / "model.onnx"
    save(helper.make_model(graph), path)
    content = path.read_bytes()
    path.write_bytes(content[: len(content) - cut])
    return is_bounded(text_format.Parse(config, pb.ModelConfig()), path)


def node(operator: str, domain: str = "") -> NodeProto:
    return helper.make_node(operator, ["X"], ["Y"], domain=domain)


def test_layers_of_a_network_are_bounded(tmp_path: Path) -> None:
    assert bounded(tmp_path, node("MatMul"), node("Relu"), node("Softmax"))


@pytest.mark.parametrize("operator", ["Loop", "If", "Scan", "Range", "ConstantOfShape", "Tile"])
def test_operators_that_do_as_much_as_a_value_says_are_not(tmp_path: Path, operator: str) -> None:
    assert not bounded(tmp_path, node("Relu"), node(operator))


def test_operators_of_unknown_domains_are_not(tmp_path: Path) -> None:
    assert not bounded(tmp_path, node("Relu", "com.example"))


def test_lengths_that_the_client_chooses_are_not(tmp_path: Path) -> None:
    assert not bounded(tmp_path, node("Relu"), config=FIXED.replace("4", "-1"))


def test_a_graph_of_many_nodes_is_not(tmp_path: Path) -> None:
    assert bounded(tmp_path, *[node("Relu")] * MOST_NODES)
    assert not bounded(tmp_path, *[node("Relu")] * (MOST_NODES + 1))


def test_what_cannot_be_read_is_not(tmp_path: Path) -> None:
    assert not bounded(tmp_path, node("Relu"), cut=1)
    (tmp_path / "model.onnx").write_bytes(b"")
    config = text_format.Parse(FIXED, pb.ModelConfig())
    assert not is_bounded(config, tmp_path / "model.onnx")
    assert not is_bounded(config, tmp_path / "missing.onnx")

"""Which graphs cost what the shapes of their inputs say, whatever the values are."""

from collections.abc import Sequence
from pathlib import Path

import onnx
import pytest
from google.protobuf import text_format
from onnx import NodeProto, TensorProto, checker, helper
from tritonclient.grpc import model_config_pb2 as pb

from backends.onnx.bounded import (
    ALLOWED,
    DOMAINS,
    MOST_FIELDS,
    MOST_NODES,
    SETTLED_INPUTS,
    is_bounded,
)

FIXED = 'input { name: "X" data_type: TYPE_FP32 dims: [ 1, 8, 8 ] }'
N = 'input { name: "N" data_type: TYPE_INT64 dims: [ 2 ] }'
S = 'input { name: "S" data_type: TYPE_STRING dims: [ 1 ] }'
CONSTANTS = {
    "W": helper.make_tensor("W", TensorProto.FLOAT, [2, 1, 3, 3], [0.1] * 18),
    "DENSE": helper.make_tensor("DENSE", TensorProto.FLOAT, [18, 4], [0.1] * 72),
    "ROW": helper.make_tensor("ROW", TensorProto.INT64, [2], [-1, 64]),
    "ZERO": helper.make_tensor("ZERO", TensorProto.INT64, [1], [0]),
    "ONE": helper.make_tensor("ONE", TensorProto.INT64, [1], [1]),
    "MINUS": helper.make_tensor("MINUS", TensorProto.INT64, [1], [-1]),
    "SCALE": helper.make_tensor("SCALE", TensorProto.FLOAT, [], [0.1]),
    "GAIN": helper.make_tensor("GAIN", TensorProto.FLOAT, [8], [1.0] * 8),
}


def graph(*nodes: NodeProto, inputs: Sequence[str] = ("X",), overridable: str = "") -> bytes:
    """As the file of a model; checked, so that what is refused could have been loaded."""
    kinds = {
        "X": (TensorProto.FLOAT, ["b", 1, 8, 8]),
        "N": (TensorProto.INT64, [2]),
        "S": (TensorProto.STRING, ["b", 1]),
    }
    infos = [helper.make_tensor_value_info(name, *kinds[name]) for name in inputs]
    if overridable:
        dims = CONSTANTS[overridable].dims
        infos.append(helper.make_tensor_value_info(overridable, TensorProto.INT64, dims))
    output = onnx.ValueInfoProto(name=nodes[-1].output[0])
    output.type.tensor_type.elem_type = TensorProto.FLOAT
    output.type.tensor_type.shape.SetInParent()
    made = helper.make_graph(nodes, "g", infos, [output], list(CONSTANTS.values()))
    opsets = [helper.make_opsetid("", 20), helper.make_opsetid("ai.onnx.ml", 3)]
    model = helper.make_model(made, opset_imports=opsets, ir_version=9)
    if all(node.domain in DOMAINS for node in nodes):
        checker.check_model(model)
    return model.SerializeToString()


def bounded(tmp_path: Path, content: bytes, config: str = FIXED) -> bool:
    path = tmp_path / "model.onnx"
    path.write_bytes(content)
    return is_bounded(text_format.Parse(config, pb.ModelConfig()), path)


def node(operator: str, inputs: str = "X", output: str = "Y", **attributes: object) -> NodeProto:
    return helper.make_node(operator, inputs.split(), [output], **attributes)


NETWORKS = {
    "a convolutional network": [
        node("Conv", "X W", "a"),
        node("Relu", "a", "b"),
        node("MaxPool", "b", "c", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", "c", "d"),
        node("Gemm", "d DENSE", "e"),
        node("Softmax", "e"),
    ],
    "a reshape to a constant": [node("Reshape", "X ROW")],
    "a reshape to what was made of shapes, as exporters of torch write view(x.size(0), -1)": [
        node("Shape", "X", "a"),
        node("Gather", "a ZERO", "b"),
        node("Concat", "b MINUS", "c", axis=0),
        node("Reshape", "X c"),
    ],
    "attention": [
        node("Transpose", "X", "a", perm=[0, 1, 3, 2]),
        node("MatMul", "X a", "b"),
        node("Softmax", "b", "c"),
        node("MatMul", "c X", "d"),
        node("LayerNormalization", "d GAIN", "e"),
        node("ReduceMean", "e ONE", "f"),
        node("Squeeze", "f ONE"),
    ],
    "quantisation, and a slice by a node that is a constant": [
        node("QuantizeLinear", "X SCALE", "a"),
        node("DequantizeLinear", "a SCALE", "b"),
        helper.make_node("Constant", [], ["two"], value_ints=[2]),
        node("Slice", "b ZERO two ONE"),
    ],
}

ROWS = node("Transpose", "a", "t"), node("MatMul", "a t")
BY_VALUES = {
    "a reshape by an input": [
        node("Reshape", "X N", "a"), *ROWS
    ],
    "a slice by an input": [
        node("Slice", "X N N", "a"), node("Transpose", "a", "t"), node("MatMul", "a t")
    ],
    "the first k, k an input": [
        node("Gather", "N ZERO", "k"), helper.make_node("TopK", ["X", "k"], ["a", "i"]),
        node("Transpose", "a", "t"), node("MatMul", "a t"),
    ],
    "an expansion to an input": [node("Expand", "X N")],
    "an expansion to what was made of an input": [
        node("Shape", "X", "s"), node("Concat", "s N", "a", axis=0), node("Expand", "X a")
    ],
    "as many as are not zero": [
        node("NonZero", "X", "a"), node("Cast", "a", "f", to=TensorProto.FLOAT),
        node("Transpose", "f", "t"), node("MatMul", "t f"),
    ],
    "as many as are chosen": [
        node("Cast", "N", "m", to=TensorProto.BOOL), node("Compress", "X m")
    ],
    "sums over axes that an input says": [node("ReduceSum", "X N")],
    "powers that an input says": [node("Pow", "X N")],
    "unique values": [node("Unique")],
    "as large as an input says": [node("ConstantOfShape", "N")],
}  # fmt: skip
OF_STRINGS = {
    "StringSplit": [helper.make_node("StringSplit", ["S"], ["Y", "n"])],
    "StringNormalizer": [node("StringNormalizer", "S")],
    "RegexFullMatch": [node("RegexFullMatch", "S", pattern="(a|b)*c")],
    "TfIdfVectorizer": [
        node("TfIdfVectorizer", "S", max_gram_length=1, max_skip_count=0, min_gram_length=1,
             mode="TF", ngram_counts=[0], ngram_indexes=[0], pool_strings=["a"])
    ],
    "LabelEncoder": [
        node("LabelEncoder", "S", domain="ai.onnx.ml", keys_strings=["a"], values_floats=[1.0])
    ],
    "Identity": [node("Identity", "S")],
}  # fmt: skip


@pytest.mark.parametrize("nodes", NETWORKS.values(), ids=NETWORKS.keys())
def test_a_graph_is_bounded_that_is(tmp_path: Path, nodes: Sequence[NodeProto]) -> None:
    assert bounded(tmp_path, graph(*nodes))


@pytest.mark.parametrize("nodes", BY_VALUES.values(), ids=BY_VALUES.keys())
def test_a_graph_is_not_bounded_that_does(tmp_path: Path, nodes: Sequence[NodeProto]) -> None:
    assert not bounded(tmp_path, graph(*nodes, inputs="XN"), FIXED + N)


@pytest.mark.parametrize("nodes", OF_STRINGS.values(), ids=OF_STRINGS.keys())
def test_a_graph_of_strings_is_not_bounded(tmp_path: Path, nodes: Sequence[NodeProto]) -> None:
    assert not bounded(tmp_path, graph(*nodes, inputs="S"), S)


def test_a_constant_that_a_request_may_replace_settles_nothing(tmp_path: Path) -> None:
    config = FIXED + N.replace('"N"', '"ROW"')
    assert bounded(tmp_path, graph(node("Reshape", "X ROW")), config)
    assert not bounded(tmp_path, graph(node("Reshape", "X ROW"), overridable="ROW"), config)


def test_a_graph_with_an_input_that_its_config_does_not_have_is_not(tmp_path: Path) -> None:
    assert not bounded(tmp_path, graph(node("Relu"), inputs="XN"))


def test_every_operator_of_the_list_is_one_of_onnx() -> None:
    known = {schema.name for schema in onnx.defs.get_all_schemas() if schema.domain in DOMAINS}
    assert (ALLOWED | SETTLED_INPUTS.keys()) - known <= {"Swish"}  # newer than some releases
    assert not ALLOWED & SETTLED_INPUTS.keys()


@pytest.mark.parametrize("operator", ["Loop", "If", "Scan", "NotOfOnnx"])
def test_operators_that_are_not_listed_are_not(tmp_path: Path, operator: str) -> None:
    made = onnx.ModelProto()
    made.graph.node.extend([node("Relu", "X", "a"), node(operator, "a")])
    assert not bounded(tmp_path, made.SerializeToString())


def test_operators_of_unknown_domains_are_not(tmp_path: Path) -> None:
    assert not bounded(tmp_path, graph(node("Relu", domain="com.example")))


def test_lengths_that_the_client_chooses_are_not(tmp_path: Path) -> None:
    assert not bounded(tmp_path, graph(node("Relu")), FIXED.replace("8, 8", "8, -1"))


def test_a_graph_of_many_nodes_is_not(tmp_path: Path) -> None:
    many = [node("Relu", "X" if not n else f"y{n - 1}", f"y{n}") for n in range(MOST_NODES + 1)]
    assert bounded(tmp_path, graph(*many[:-1]))
    assert not bounded(tmp_path, graph(*many))


def test_a_file_of_many_fields_is_not(tmp_path: Path) -> None:
    made = onnx.load_from_string(graph(node("Relu")))
    made.graph.value_info.extend([onnx.ValueInfoProto(name="v")] * (MOST_FIELDS - 100))
    assert bounded(tmp_path, made.SerializeToString())
    made.graph.value_info.extend([onnx.ValueInfoProto(name="v")] * 100)
    assert not bounded(tmp_path, made.SerializeToString())


def test_what_cannot_be_read_is_not(tmp_path: Path) -> None:
    assert not bounded(tmp_path, graph(node("Relu"))[:-1])
    assert not bounded(tmp_path, b"")
    config = text_format.Parse(FIXED, pb.ModelConfig())
    assert not is_bounded(config, tmp_path / "missing.onnx")

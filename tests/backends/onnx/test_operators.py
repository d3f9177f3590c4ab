"""Graphs that the installed onnxruntime does not know are refused before it sees them."""

from pathlib import Path

import onnx
import onnxruntime as ort
import pytest
from onnx import TensorProto, helper

from backends.errors import LoadFailed
from backends.onnx.backend import ORT_ERRORS, OnnxRuntime, _cause
from backends.onnx.operators import newest_ir_version, newest_opset, unsupported
from support.runtime import make_version


def model(op: str = "Relu", opset: int = 18, domain: str = "", ir: int = 10) -> onnx.ModelProto:
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", 4]) for n in "xy"]
    node = helper.make_node(op, ["x"], ["y"], domain=domain)
    graph = helper.make_graph([node], "g", tensors[:1], tensors[1:])
    opsets = [helper.make_opsetid("", opset)]
    if domain:
        opsets.append(helper.make_opsetid(domain, 1))
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir)


def loads(one: onnx.ModelProto) -> bool:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    try:
        ort.InferenceSession(one.SerializeToString(), options, providers=["CPUExecutionProvider"])
    except ORT_ERRORS:
        return False
    return True


@pytest.mark.parametrize(
    "one",
    [
        model(),
        model("Gelu", domain="com.microsoft"),
        model("Relu", opset=7),
        model("Frobnicate"),
        model("Frobnicate", domain="my.ops"),
        model("Gelu", opset=13),
    ],
    ids=["plain", "microsoft", "early", "unknown", "custom", "too-early"],
)
def test_it_is_refused_exactly_where_onnxruntime_refuses(one: onnx.ModelProto) -> None:
    assert bool(unsupported(one, False)) == (not loads(one))


def test_the_newest_opset_and_file_format_are_those_that_load() -> None:
    newest, ir = newest_opset(), newest_ir_version()
    assert loads(model(opset=newest))
    assert not loads(model(opset=newest + 1))
    assert loads(model(ir=ir))
    assert not loads(model(ir=ir + 1))
    assert unsupported(model(opset=newest), False) == ""
    assert f"supports up to {newest}" in unsupported(model(opset=newest + 1), False)
    assert f"reads up to {ir}" in unsupported(model(ir=ir + 1), False)


def test_operators_of_a_library_are_taken_on_trust_but_not_those_of_onnx() -> None:
    assert unsupported(model("Frobnicate", domain="my.ops"), True) == ""
    assert "ai.onnx:Frobnicate" in unsupported(model("Frobnicate"), True)


def test_operators_in_subgraphs_and_functions_are_seen() -> None:
    inner = helper.make_graph(
        [helper.make_node("Frobnicate", [], ["z"])],
        "inner",
        [],
        [helper.make_tensor_value_info("z", TensorProto.FLOAT, [1])],
    )
    one = model()
    one.graph.node.append(
        helper.make_node("If", ["c"], ["w"], then_branch=inner, else_branch=inner)
    )
    assert "ai.onnx:Frobnicate" in unsupported(one, False)
    two = model("Mine", domain="local")
    opsets = [helper.make_opsetid("", 18)]
    body = [helper.make_node("Frobnicate2", ["x"], ["y"])]
    two.functions.append(helper.make_function("local", "Mine", ["x"], ["y"], body, opsets))
    assert "Frobnicate2" in unsupported(two, False)


def test_the_check_names_the_operator_and_the_remedy(tmp_path: Path) -> None:
    version = make_version(tmp_path)
    onnx.save(model("Frobnicate", domain="my.ops"), version.path / "model.onnx")

    with pytest.raises(LoadFailed, match=r"model 'm' version 1: .*my\.ops:Frobnicate; export it"):
        OnnxRuntime().complete(version, 4)


def test_a_message_of_onnxruntime_is_given_without_cpp_signatures_and_newlines() -> None:
    said = (
        "[ONNXRuntimeError] : 1 : FAIL : /onnxruntime_src/onnxruntime/core/graph/x.h:46 void "
        "onnxruntime::f(const std::unordered_map<std::basic_string<char>, int>&, bool (*)(int)) "
        "Opset 40 is under development.\n"
    )
    assert _cause(RuntimeError(said)) == "Opset 40 is under development."
    said = (
        "[ONNXRuntimeError] : 2 : X : Non-zero status code returned while running Add node. "
        "Status Message: /a/b/ops.h:540 void onnxruntime::Init(ptrdiff_t, ptrdiff_t) axis was 2 (!)"
    )
    assert _cause(RuntimeError(said)).endswith("Add node. Status Message: axis was 2 (!)")

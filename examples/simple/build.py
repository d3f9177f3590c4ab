"""Writes Triton's quick-start model: the sum and the difference of two vectors."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

OPSET = 17


def build(version: int, folder: Path) -> None:
    """Write `model.onnx`: INPUT0, INPUT1 INT32 [n,16] → OUTPUT0 = sum, OUTPUT1 = difference."""
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["INPUT0", "INPUT1"], ["OUTPUT0"]),
            helper.make_node("Sub", ["INPUT0", "INPUT1"], ["OUTPUT1"]),
        ],
        "simple",
        [_tensor("INPUT0"), _tensor("INPUT1")],
        [_tensor("OUTPUT0"), _tensor("OUTPUT1")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "model.onnx")


def _tensor(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT32, ["batch", 16])

"""Writes a graph that adds an input to a state: the server keeps the state of each sequence."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

OPSET = 17


def build(version: int, folder: Path) -> None:
    """Write `model.onnx`: INPUT INT32 [n,1], SUM_IN [n,1] → OUTPUT = SUM_OUT = INPUT + SUM_IN."""
    graph = helper.make_graph(
        [
            helper.make_node("Add", ["INPUT", "SUM_IN"], ["OUTPUT"]),
            helper.make_node("Identity", ["OUTPUT"], ["SUM_OUT"]),
        ],
        "running_sum",
        [_tensor("INPUT"), _tensor("SUM_IN")],
        [_tensor("OUTPUT"), _tensor("SUM_OUT")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "model.onnx")


def _tensor(name: str) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.INT32, ["batch", 1])

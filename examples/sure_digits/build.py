"""Writes how sure a network is of its scores; the networks are those of the example digits."""

from pathlib import Path

import onnx
from onnx import TensorProto, helper

OPSET = 17


def build(version: int, folder: Path) -> None:
    """The ensemble's version folder is empty."""


def build_part(part: str, version: int, folder: Path) -> None:
    """`digits_certainty`: LOGITS FP32 [n,10] → SAME, and CONFIDENCE FP32 [n,1], the softmax of the
    best."""
    nodes = [
        helper.make_node("Identity", ["LOGITS"], ["SAME"]),
        helper.make_node("Softmax", ["LOGITS"], ["shares"], axis=1),
        helper.make_node("ReduceMax", ["shares"], ["CONFIDENCE"], axes=[1], keepdims=1),
    ]
    graph = helper.make_graph(
        nodes,
        part,
        [_tensor("LOGITS", 10)],
        [_tensor("SAME", 10), _tensor("CONFIDENCE", 1)],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "model.onnx")


def _tensor(name: str, size: int) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])

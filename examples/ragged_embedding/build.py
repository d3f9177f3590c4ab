"""Writes an embedding model of texts of any length: the mean of their tokens' vectors, normalised.

The vectors are random and always the same: texts that share words come to lie near each other.
"""

from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from examples.ragged_embedding.tokens import VOCABULARY

DIMENSIONS = 64
OPSET = 17


def build(version: int, folder: Path) -> None:
    """Write `model.onnx`: ids INT64 [n], of all requests one behind the other, and offsets INT32
    [requests + 1] → embedding FP32 [requests, 64]."""
    nodes = [
        helper.make_node("Gather", ["table", "ids"], ["vectors"]),
        helper.make_node("CumSum", ["vectors", "first_axis"], ["sums_to"]),
        helper.make_node("Concat", ["nothing", "sums_to"], ["sums_before"], axis=0),
        helper.make_node("Slice", ["offsets", "one", "end"], ["ends"]),
        helper.make_node("Slice", ["offsets", "zero", "minus_one"], ["starts"]),
        helper.make_node("Gather", ["sums_before", "ends"], ["sums_at_end"]),
        helper.make_node("Gather", ["sums_before", "starts"], ["sums_at_start"]),
        helper.make_node("Sub", ["sums_at_end", "sums_at_start"], ["sums"]),
        helper.make_node("ReduceL2", ["sums"], ["lengths"], axes=[1]),
        helper.make_node("Max", ["lengths", "least"], ["divisors"]),
        helper.make_node("Div", ["sums", "divisors"], ["embedding"]),
    ]
    table = np.random.default_rng(20261124).standard_normal((VOCABULARY, DIMENSIONS))
    constants = {
        "table": table.astype(np.float32),
        "nothing": np.zeros((1, DIMENSIONS), np.float32),
        "least": np.float32(1e-6),
        "first_axis": np.int64(0),
        "zero": np.array([0]),
        "one": np.array([1]),
        "minus_one": np.array([-1]),
        "end": np.array([np.iinfo(np.int64).max]),
    }
    graph = helper.make_graph(
        nodes,
        "ragged_embedding",
        [
            helper.make_tensor_value_info("ids", TensorProto.INT64, ["tokens"]),
            helper.make_tensor_value_info("offsets", TensorProto.INT32, ["offsets"]),
        ],
        [helper.make_tensor_value_info("embedding", TensorProto.FLOAT, ["texts", DIMENSIONS])],
        [numpy_helper.from_array(np.asarray(one), name) for name, one in constants.items()],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "model.onnx")

"""Rows run by networks that fix their number."""

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from jobs.tools.networks.sessions import open_session, run_rows
from jobs.tools.work import WorkRefused


def twice(rows: int) -> bytes:
    """Y = X + X, in calls of so many rows."""
    tensors = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, [rows, 1]) for name in ("X", "Y")
    ]
    graph = helper.make_graph(
        [helper.make_node("Add", ["X", "X"], ["Y"])], "twice", tensors[:1], tensors[1:]
    )
    network = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=onnx.IR_VERSION_2023_5_5
    )
    content: bytes = network.SerializeToString()
    return content


def test_rows_that_do_not_fill_a_call_are_left_out() -> None:
    rows = np.arange(7, dtype=np.float32)[:, None]
    found = run_rows(open_session(twice(3), "it"), {"X": rows})["Y"]
    assert found.ravel().tolist() == [0, 2, 4, 6, 8, 10]


def test_fewer_rows_than_a_call_has_are_refused_with_both_numbers() -> None:
    rows = np.zeros((2, 1), np.float32)
    with pytest.raises(WorkRefused, match="takes 3 rows in each call, and there are 2"):
        run_rows(open_session(twice(3), "it"), {"X": rows})

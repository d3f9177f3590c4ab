"""Requests of different shapes for an input with `allow_ragged_batch`."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from onnx import TensorProto, helper

from support.server import running

CONFIG = """
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
output { name: "y" data_type: TYPE_FP32 dims: -1 }
dynamic_batching { max_queue_delay_microseconds: 500000 }
instance_group { count: 1 kind: KIND_CPU }
"""
PYTHON = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        found = [pb_utils.get_input_tensor_by_name(one, "x").as_numpy() for one in requests]
        return [pb_utils.InferenceResponse([pb_utils.Tensor("y", one)]) for one in found]
"""


def onnx_model(folder: Path) -> None:
    tensors = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["N", "M"]) for n in "xy"]
    graph = helper.make_graph(
        [helper.make_node("Relu", ["x"], ["y"])], "g", tensors[:1], tensors[1:]
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=10)
    (folder / "model.onnx").write_bytes(model.SerializeToString())


def python_model(folder: Path) -> None:
    (folder / "model.py").write_text(PYTHON)


@pytest.mark.parametrize("make", [onnx_model, python_model])
def test_requests_of_different_shapes_at_once_are_each_answered(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    (tmp_path / "m" / "1").mkdir(parents=True)
    (tmp_path / "m" / "config.pbtxt").write_text(CONFIG)
    make(tmp_path / "m" / "1")
    with running(tmp_path) as server, ThreadPoolExecutor(4) as pool:

        def ask(size: int) -> tuple[int, bytes]:
            x = {"name": "x", "datatype": "FP32", "shape": [1, size], "data": [1.0] * size}
            return server.post("/v2/models/m/infer", {"inputs": [x]})

        answers = list(pool.map(ask, (2, 3, 4, 3)))
    assert [status for status, _ in answers] == [200] * 4, answers

"""Requests of different shapes share one execution, on every backend that has such batches."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch
from onnx import TensorProto, helper

from support.runtime import save_graph
from support.server import Server, running

pytestmark = pytest.mark.filterwarnings(r"ignore:`torch\.jit\.\w+` is deprecated")

LENGTHS = (2, 3, 4, 3)
SHARED = """
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
output { name: "y" data_type: TYPE_FP32 dims: -1 }
output { name: "count" data_type: TYPE_INT32 dims: [ 1 ] }
batch_input {
  kind: BATCH_ELEMENT_COUNT target_name: "counts" data_type: TYPE_INT32 source_input: "x"
}
dynamic_batching { preferred_batch_size: 4 max_queue_delay_microseconds: 60000000 }
instance_group { count: 1 kind: KIND_CPU }
"""
"""Of a model that gives x back as y, and says how many elements a request has."""
SCATTER = 'batch_output { target_name: "y" source_input: "x" }'
PYTHON = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        responses = []
        for index, one in enumerate(requests):
            y = pb_utils.get_input_tensor_by_name(one, "x").as_numpy()
            counts = pb_utils.get_input_tensor_by_name(one, "counts").as_numpy()
            assert counts.shape == (len(requests),)
            count = pb_utils.Tensor("count", counts[index : index + 1, None])
            responses.append(pb_utils.InferenceResponse([pb_utils.Tensor("y", y), count]))
        return responses
"""


class Counted(torch.nn.Module):
    def forward(self, x: torch.Tensor, counts: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(x), counts.unsqueeze(1)


def save_onnx(path: Path) -> None:
    value = helper.make_tensor_value_info
    axis = helper.make_tensor("axis", TensorProto.INT64, [1], [1])
    nodes = [
        helper.make_node("Relu", ["x"], ["y"]),
        helper.make_node("Unsqueeze", ["counts", "axis"], ["count"]),
    ]
    inputs = [value("x", TensorProto.FLOAT, ["N"]), value("counts", TensorProto.INT32, ["B"])]
    outputs = [value("y", TensorProto.FLOAT, ["N"]), value("count", TensorProto.INT32, ["B", 1])]
    save_graph(path, helper.make_graph(nodes, "g", inputs, outputs, [axis]))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    for name in ("onnx", "script", "python"):
        (folder / name / "1").mkdir(parents=True)
        config = SHARED if name == "python" else SHARED + SCATTER
        (folder / name / "config.pbtxt").write_text(config)
    save_onnx(folder / "onnx" / "1" / "model.onnx")
    script = torch.jit.script(Counted())  # type: ignore[no-untyped-call]
    script.save(str(folder / "script" / "1" / "model.pt"))
    (folder / "python" / "1" / "model.py").write_text(PYTHON)
    with running(folder) as started:
        yield started


@pytest.mark.parametrize("model", ["onnx", "script", "python"])
def test_requests_of_different_lengths_share_one_execution(server: Server, model: str) -> None:
    def ask(size: int) -> tuple[int, bytes]:
        x = {"name": "x", "datatype": "FP32", "shape": [1, size], "data": [float(size)] * size}
        return server.post(f"/v2/models/{model}/infer", {"inputs": [x]})

    with ThreadPoolExecutor(len(LENGTHS)) as pool:
        answers = list(pool.map(ask, LENGTHS))

    for size, (status, body) in zip(LENGTHS, answers, strict=True):
        assert status == 200, body
        y, count = json.loads(body)["outputs"]
        assert (y["shape"], y["data"]) == ([1, size], [float(size)] * size)
        assert count["data"] == [size]
    _, body = server.get(f"/v2/models/{model}/stats")
    stats = json.loads(body)["model_stats"][0]
    assert (stats["inference_count"], stats["execution_count"]) == (4, 1)


def test_clients_are_not_told_of_inputs_that_the_server_fills(server: Server) -> None:
    _, body = server.get("/v2/models/onnx")
    assert [one["name"] for one in json.loads(body)["inputs"]] == ["x"]

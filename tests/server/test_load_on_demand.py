"""Models that their first request loads, in a real server: every way in, and what is refused."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path
from queue import Queue
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from support.http import ask, infer_body
from support.server import Server, running, write_identity

PATIENCE_S = 60
ENSEMBLE = """
name: "row" platform: "ensemble" max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_FP32 dims: -1 }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: -1 }
ensemble_scheduling { step { model_name: "of_ensemble" model_version: -1
  input_map { key: "INPUT0" value: "INPUT0" }
  output_map { key: "OUTPUT0" value: "OUTPUT0" } } }
"""
CALLER = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    @staticmethod
    def auto_complete_config(config):
        config.add_input({"name": "INPUT0", "data_type": "TYPE_FP32", "dims": [-1]})
        config.add_output({"name": "OUTPUT0", "data_type": "TYPE_FP32", "dims": [-1]})
        config.set_max_batch_size(8)
        return config

    def execute(self, requests):
        answers = []
        for request in requests:
            call = pb_utils.InferenceRequest(
                model_name="of_caller",
                requested_output_names=["OUTPUT0"],
                inputs=request.inputs(),
            )
            answers.append(call.exec())
        return answers
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("models")
    for name in ("of_rest", "of_grpc", "of_stream", "of_ensemble", "of_caller", "asked"):
        write_identity(root, name)
    write_identity(root, "huge")
    with (root / "huge" / "1" / "weights.bin").open("wb") as file:
        os.truncate(file.fileno(), 400 << 20)
    config = (root / "huge" / "config.pbtxt").read_text()
    (root / "huge" / "config.pbtxt").write_text(config.replace("identity", "python"))
    (root / "huge" / "1" / "model.py").write_text("class TritonPythonModel: pass\n")
    (root / "row" / "1").mkdir(parents=True)
    (root / "row" / "config.pbtxt").write_text(ENSEMBLE)
    (root / "caller" / "1").mkdir(parents=True)
    (root / "caller" / "1" / "model.py").write_text(CALLER)
    (root / "caller" / "config.pbtxt").write_text('backend: "python"')
    with running(root, load_on_demand=True, memory_budget="cpu=300MiB") as server:
        yield server


def reason(server: Server, model: str) -> str:
    (row,) = (row for row in server.index() if row["name"] == model)
    assert row["state"] == "READY"
    return str(row.get("reason", ""))


def resident(server: Server) -> set[str]:
    lines = server.get("/metrics", server.metrics_port)[1].decode().splitlines()
    loaded = (line for line in lines if line.startswith("modelyard_resident{"))
    return {line.split('"')[1] for line in loaded if line.endswith(" 1")}


def floats() -> Any:
    tensor = triton.InferInput("INPUT0", [1, 2], "FP32")
    tensor.set_data_from_numpy(np.ones((1, 2), np.float32))
    return [tensor]


def test_a_model_that_is_not_loaded_is_ready_and_says_what_it_takes(server: Server) -> None:
    assert "asked" not in resident(server)
    assert server.is_ready("/v2/models/asked/ready")
    document = json.loads(server.get("/v2/models/asked")[1])
    assert [tensor["name"] for tensor in document["inputs"]] == ["INPUT0"]
    assert server.get("/v2/models/asked/config")[0] == 200
    assert reason(server, "asked") == "unloaded, loads on demand"
    assert "asked" not in resident(server)


def test_rest_loads(server: Server) -> None:
    answer = ask(server, "POST", "/v2/models/of_rest/infer", infer_body())
    assert answer.status == 200
    assert "of_rest" in resident(server)
    assert reason(server, "of_rest") == ""


def test_grpc_and_its_stream_load(server: Server) -> None:
    with triton.InferenceServerClient(server.grpc) as client:
        assert client.infer("of_grpc", floats()).as_numpy("OUTPUT0").tolist() == [[1.0, 1.0]]
        answers: Queue[Any] = Queue()
        client.start_stream(lambda result, error: answers.put((result, error)))
        client.async_stream_infer("of_stream", floats())
        result, error = answers.get(timeout=PATIENCE_S)
        client.stop_stream()
    assert error is None
    assert result.as_numpy("OUTPUT0").tolist() == [[1.0, 1.0]]
    assert {"of_grpc", "of_stream"} <= resident(server)


def test_an_ensemble_has_its_steps_loaded(server: Server) -> None:
    assert "of_ensemble" not in resident(server)
    assert ask(server, "POST", "/v2/models/row/infer", infer_body()).status == 200
    assert "of_ensemble" in resident(server)


def test_a_script_has_the_models_that_it_calls_loaded(server: Server) -> None:
    assert "of_caller" not in resident(server)
    answer = ask(server, "POST", "/v2/models/caller/infer", infer_body())
    assert answer.status == 200, answer.body
    assert {"caller", "of_caller"} <= resident(server)


def test_what_cannot_fit_is_refused_alike_over_rest_and_grpc(server: Server) -> None:
    answer = ask(server, "POST", "/v2/models/huge/infer", infer_body())
    text = json.loads(answer.body)["error"]
    assert answer.status == 503
    assert answer.headers["retry-after"] == "2"
    assert "model 'huge' is not loaded: huge version 1 needs" in text
    assert "the whole budget is 300 MiB; make it smaller" in text
    with (
        triton.InferenceServerClient(server.grpc) as client,
        pytest.raises(InferenceServerException) as refused,
    ):
        client.infer("huge", floats())
    assert refused.value.status() == "StatusCode.UNAVAILABLE"
    assert refused.value.message() == text
    assert server.is_ready()


@pytest.mark.slow
def test_an_idle_model_with_a_process_of_its_own_is_evicted_and_comes_back(
    tmp_path: Path,
) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "1").mkdir(parents=True)
        script = CALLER.replace('model_name="of_caller"', 'model_name="identity"')
        (tmp_path / name / "1" / "model.py").write_text(script)
        (tmp_path / name / "config.pbtxt").write_text('backend: "python"')
    write_identity(tmp_path, "identity")
    settings = {"load_on_demand": True, "memory_budget": "cpu=40MiB", "min_residency_secs": 0}
    with running(tmp_path, **settings) as server:
        for name in ("one", "two", "one"):
            answer = ask(server, "POST", f"/v2/models/{name}/infer", infer_body())
            assert answer.status == 200, answer.body
            deadline = time.monotonic() + PATIENCE_S
            while resident(server) != {name, "identity"} and time.monotonic() < deadline:
                pass
            assert resident(server) == {name, "identity"}

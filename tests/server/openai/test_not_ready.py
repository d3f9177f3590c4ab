"""Models that are known and do not answer yet, over OpenAI's API, REST and gRPC."""

import http.client
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tritonclient.grpc as grpc_client
from tritonclient.utils import InferenceServerException

from support.server import Server, running

WAITS_TO_LOAD = """
import pathlib, time
class TritonPythonModel:
    def initialize(self, args):
        while not pathlib.Path(__file__).with_name("go").exists():
            time.sleep(0.02)
    def execute(self, requests):
        return []
"""
CONFIG = 'backend: "python" output { name: "OUT" data_type: TYPE_FP32 dims: 1 }'
LOADING = "version 1 is loading"
RESTARTING = "version 1 has no live instance: its worker died and is being restarted"


@pytest.fixture
def loading(tmp_path: Path) -> Iterator[tuple[Server, Path]]:
    """A server whose model `slow` loads until the file that is given is there."""
    folder = tmp_path / "slow" / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(WAITS_TO_LOAD)
    (folder.parent / "config.pbtxt").write_text(CONFIG)
    with running(tmp_path, wait=False) as server:
        server.wait_for(lambda: is_loading(server), "the model to load")
        yield server, folder / "go"


def is_loading(server: Server) -> bool:
    try:
        return any(row.get("state") == "LOADING" for row in server.index())
    except OSError:
        return False


def asked(
    server: Server, verb: str, path: str, body: Any = None
) -> tuple[int, str | None, dict[str, Any]]:
    """Status, Retry-After and the error."""
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=30)
    connection.request(verb, path, None if body is None else json.dumps(body))
    response = connection.getresponse()
    found = response.status, response.getheader("Retry-After"), json.loads(response.read())["error"]
    connection.close()
    return found


def asked_over_grpc(server: Server) -> tuple[str, str]:
    with (
        grpc_client.InferenceServerClient(server.grpc) as client,
        pytest.raises(InferenceServerException) as refused,
    ):
        client.infer("slow", [])
    return str(refused.value.status()), str(refused.value.message())


def chat(server: Server, model: str) -> tuple[int, str | None, dict[str, Any]]:
    body = {"model": model, "messages": [{"role": "user", "content": "x"}]}
    return asked(server, "POST", "/v1/chat/completions", body)


def infer(server: Server) -> tuple[int, str | None, Any]:
    return asked(server, "POST", "/v2/models/slow/infer", {"inputs": []})


def test_a_model_that_loads_or_whose_worker_restarts_is_not_called_unknown(
    loading: tuple[Server, Path],
) -> None:
    server, go = loading
    envelope = {
        "message": f"The model 'slow' is not ready: {LOADING}",
        "type": "server_error",
        "param": "model",
        "code": "model_not_ready",
    }
    assert chat(server, "slow") == (503, "2", envelope)
    assert asked(server, "GET", "/v1/models/slow") == (503, "2", envelope)
    assert chat(server, "nobody")[0] == asked(server, "GET", "/v1/models/nobody")[0] == 404
    triton = "Request for unknown model: 'slow' has no available versions: " + LOADING
    assert infer(server) == (404, None, triton)
    assert asked_over_grpc(server) == ("StatusCode.NOT_FOUND", triton)

    go.touch()
    server.wait_ready()
    go.unlink()
    for worker in server.children("modelyard worker slow_"):
        os.kill(worker, signal.SIGKILL)
    server.wait_for(lambda: not server.is_ready("/v2/models/slow/ready"), "the worker to be gone")
    status, retry_after, error = chat(server, "slow")
    assert (status, retry_after) == (503, "2")
    assert error["message"] == f"The model 'slow' is not ready: {RESTARTING}"
    triton = f"Request for unknown model: 'slow' version 1 is not at ready state: {RESTARTING}"
    assert infer(server) == (503, "2", triton)
    assert asked_over_grpc(server) == ("StatusCode.UNAVAILABLE", triton)

"""What a worker gives at once is bounded; what is too large fails its own request alone."""

import json
from collections.abc import Iterator

import pytest

from support.sandbox import answer, write_prober
from support.server import Server, running

LIMIT = 1 << 20
_STREAM = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            sender = request.get_response_sender()
            for size in (1, 1 << 19, 2):
                out = pb_utils.Tensor("OUT", np.zeros(size, np.float32))
                sender.send(pb_utils.InferenceResponse([out]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
_STREAM_CONFIG = """
backend: "python"
input { name: "IN" data_type: TYPE_FP32 dims: -1 }
output { name: "OUT" data_type: TYPE_FP32 dims: -1 }
model_transaction_policy { decoupled: true }
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    models = tmp_path_factory.mktemp("models")
    write_prober(models, "m", pid="import os; return os.getpid()", large="return 'x' * (1 << 20)")
    (models / "s" / "1").mkdir(parents=True)
    (models / "s" / "config.pbtxt").write_text(_STREAM_CONFIG)
    (models / "s" / "1" / "model.py").write_text(_STREAM)
    with running(models, worker_output_limit=LIMIT) as one:
        yield one


def test_an_answer_that_is_too_large_fails_its_request_and_leaves_the_worker(
    server: Server,
) -> None:
    before = answer(server, "m", "pid")
    inputs = [{"name": "IN", "datatype": "BYTES", "shape": [1], "data": ["large"]}]
    status, body = server.post("/v2/models/m/infer", {"inputs": inputs})
    assert status == 500
    assert json.loads(body)["error"].startswith(
        "model 'm' version 1: its answer to a batch has outputs of 1048628 bytes, more than "
        "--worker-output-limit=1048576"
    )
    assert answer(server, "m", "pid") == before


def test_a_response_of_a_stream_that_is_too_large_is_an_error_in_its_place(
    server: Server,
) -> None:
    status, body = server.post("/v2/models/s/generate_stream", {"IN": [1.0]})
    assert status == 200
    events = [json.loads(line[6:]) for line in body.splitlines() if line.startswith(b"data: ")]
    assert "OUT" in events[0]
    assert (
        "model 's' version 1: a response has outputs of 2097152 bytes, more than "
        "--worker-output-limit=1048576" in events[1]["error"]
    )

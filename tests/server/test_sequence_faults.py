"""Sequences when something goes wrong: instances die, clients vanish, time runs out."""

import http.client
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from support.sequences import flag_control, rest, write_running_sum
from support.server import Server, running
from support.usage import resident_bytes

pytestmark = pytest.mark.slow

MODEL = """
import os
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        def tensor(name):
            return pb_utils.get_input_tensor_by_name(request, name).as_numpy().ravel()[0]

        value, key = int(tensor("INPUT")), tensor("KEY").decode()
        if value == -1:
            os._exit(3)
        if tensor("START"):
            assert request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START
            self.sums[key] = 0
        assert key == str(request.correlation_id())
        self.sums[key] += value
        output = np.array([[self.sums[key]]], np.int32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", output)])
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("faults")
    write_python(repository)
    idle = "max_sequence_idle_microseconds: 60000000"
    write_running_sum(repository, "tight", f"direct {{ }} {idle}", rows=1, extra=ONE)
    write_running_sum(
        repository,
        "crowded",
        "oldest { max_candidate_sequences: 20000 } max_sequence_idle_microseconds: 3000000",
        extra=ONE,
    )
    with running(repository) as started:
        yield started


ONE = "instance_group { kind: KIND_CPU count: 1 }"


def write_python(repository: Path) -> None:
    version = repository / "remembering" / "1"
    version.mkdir(parents=True)
    (version / "model.py").write_text(MODEL)
    controls = flag_control("START", "START", "bool_false_true: [ false, true ]")
    controls += flag_control("KEY", "CORRID", "data_type: TYPE_STRING")
    (repository / "remembering" / "config.pbtxt").write_text(
        f"""
        name: "remembering" backend: "python" max_batch_size: 4
        input {{ name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }}
        output {{ name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }}
        sequence_batching {{ oldest {{ max_candidate_sequences: 8 }}
          max_sequence_idle_microseconds: 60000000 {controls} }} {ONE}
        """
    )


def sum_of(answer: object) -> int:
    assert isinstance(answer, dict)
    return int(answer["outputs"][0]["data"][0])


def metric(server: Server, name: str, model: str) -> int:
    label = f'{name}{{model="{model}",version="1"}} '
    for line in server.get("/metrics", server.metrics_port)[1].decode().splitlines():
        if line.startswith(label):
            return int(line.removeprefix(label))
    raise AssertionError(f"no metric {label}")


def test_with_its_worker_a_sequence_dies_and_every_client_is_told_so(server: Server) -> None:
    for key in ("a", "b"):
        assert rest(server, "remembering", 5, sequence_id=key, sequence_start=True)[0] == 200
    assert sum_of(rest(server, "remembering", 2, sequence_id="a")[1]) == 7
    status, answer = rest(server, "remembering", -1, sequence_id="a")
    assert status == 500
    server.wait_for(
        lambda: server.is_ready("/v2/models/remembering/ready"), "the worker to be back"
    )
    for key in ("a", "b"):
        status, answer = rest(server, "remembering", 2, sequence_id=key)
        assert status == 500
        assert "start" in answer["error"], answer
    assert metric(server, "modelyard_sequences_lost", "remembering") == 2
    status, answer = rest(server, "remembering", 9, sequence_id="a", sequence_start=True)
    assert (status, sum_of(answer)) == (200, 9)


def test_a_timeout_in_the_backlog_ends_the_sequence_in_tritons_words(server: Server) -> None:
    assert rest(server, "tight", 1, sequence_id=1, sequence_start=True)[0] == 200
    status, answer = rest(server, "tight", 1, sequence_id=2, sequence_start=True, timeout=20_000)
    assert (status, answer["error"]) == (
        503,
        "timeout of the corresponding sequence has been expired",
    )
    assert sum_of(rest(server, "tight", 4, sequence_id=1, sequence_end=True)[1]) == 5


@pytest.mark.slow
def test_ten_thousand_abandoned_sequences_are_freed_once_they_are_idle(server: Server) -> None:
    """The first ten thousand grow what is kept for as many; the second leave nothing behind."""
    abandon_all(server, 1)
    before = resident_bytes(server)
    abandon_all(server, 10_001)
    grown = resident_bytes(server) - before
    assert grown < 8 * 2**20, f"{grown} bytes more than after the first ten thousand"
    assert metric(server, "nv_inference_pending_request_count", "crowded") == 0
    assert sum_of(rest(server, "crowded", 3, sequence_id=1, sequence_start=True)[1]) == 3


def abandon_all(server: Server, first: int) -> None:
    """Begin ten thousand sequences and return when all are over."""
    expired = metric(server, "modelyard_sequences_expired", "crowded")
    with ThreadPoolExecutor(4) as pool:
        starts = range(first, first + 10_000, 2_500)
        for done in [pool.submit(abandon, server, start) for start in starts]:
            done.result()
    server.wait_for(
        lambda: metric(server, "modelyard_sequences_expired", "crowded") == expired + 10_000,
        "all of them to be idle for too long",
    )
    assert metric(server, "modelyard_sequences_live", "crowded") == 0


def abandon(server: Server, first: int) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", server.http_port, timeout=60)
    for key in range(first, first + 2_500):
        body = {
            "parameters": {"sequence_id": key, "sequence_start": True},
            "inputs": [{"name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [1]}],
        }
        connection.request("POST", "/v2/models/crowded/infer", json.dumps(body))
        response = connection.getresponse()
        assert response.status == 200, response.read()
        response.read()
    connection.close()

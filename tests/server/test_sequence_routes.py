"""Sequences behind a route, on a whole server: each stays on the arm and the version on which it
began, through changes of weights, the kill switch, a rollout, a reload, and the server's end."""

import itertools
import re
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from support.rollouts_yard import CALM, rollout
from support.sequences import infer, input_of, write_running_sum
from support.yard import Yard, yard

pytestmark = pytest.mark.slow

MODEL = ROUTE = "sums"
KEYS = itertools.count(1)
CODE = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.version, self.sums = int(args["model_version"]), {}

    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        key = request.correlation_id()
        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            self.sums[key] = 0
        self.sums[key] += int(request.inputs()[0].as_numpy().item())
        out = np.array([[10 * self.sums[key] + self.version]], np.int32)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUTPUT", out)])
"""
"""Answers ten times the sum of the sequence so far, and its version."""
CONFIG = f"""
name: "{MODEL}" backend: "python" max_batch_size: 1
input {{ name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }}
output {{ name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }}
sequence_batching {{
  oldest {{ max_candidate_sequences: 64 }} max_sequence_idle_microseconds: 600000000
}}
instance_group {{ kind: KIND_CPU }}
version_policy {{ all {{}} }}
"""
IDLE = "oldest { max_candidate_sequences: 64 } max_sequence_idle_microseconds: 600000000"
PLAN = {**CALM, "mirror": 0, "steps": "50,100", "hold": "0.5s"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("yard")
    write(folder)
    with yard(folder, exit_timeout_secs=30) as y:
        y.wait_versions(MODEL, 1, 2)
        y.wait_for(lambda: loaded(y) == {1, 2}, "the control process to hear of them")
        yield y


def write(folder: Path, note: str = "") -> None:
    home = folder / "models" / MODEL
    for number in (1, 2):
        (home / str(number)).mkdir(parents=True, exist_ok=True)
        (home / str(number) / "model.py").write_text(CODE + note)
    (home / "config.pbtxt").write_text(CONFIG)


def loaded(y: Yard) -> set[int]:
    loads = y.api("GET", f"/loads?model={MODEL}")[1]["items"]
    return {one["version"] for one in loads} - {0}


class Stream:
    """A client of ModelStreamInfer that looks like one of unary calls."""

    def __init__(self, url: str) -> None:
        self._client = grpc_client.InferenceServerClient(url)
        self._heard: SimpleQueue[tuple[Any, Any]] = SimpleQueue()
        self._client.start_stream(lambda result, error: self._heard.put((result, error)))

    def infer(self, model: str, inputs: list[Any], **more: Any) -> Any:
        self._client.async_stream_infer(model, inputs, **more)
        result, error = self._heard.get(timeout=60)
        if error is not None:
            raise error
        return result

    def close(self) -> None:
        self._client.stop_stream(cancel_requests=True)
        self._client.close()


@pytest.fixture
def clients(served: Yard) -> Iterator[list[Any]]:
    """One of each protocol."""
    made = [
        http_client.InferenceServerClient(served.server.http),
        grpc_client.InferenceServerClient(served.server.grpc),
        Stream(served.server.grpc),
    ]
    yield made
    for one in made:
        one.close()


def put(y: Yard, stable: float, candidate: float) -> None:
    """Weigh the arms, and return when that is in force."""
    arms = [
        {"name": "stable", "model": MODEL, "version": 1, "weight": stable},
        {"name": "candidate", "model": MODEL, "version": 2, "weight": candidate},
    ]
    status, made = y.api("PUT", f"/routes/{ROUTE}", {"arms": arms})
    assert status == 200, made
    in_force(y, 1 if stable else 2)


def in_force(y: Yard, version: int) -> None:
    def answers() -> bool:
        try:
            return ask(client, next(KEYS), 1, "se")[1] == version
        except InferenceServerException:
            return False  # the route is not known yet

    with http_client.InferenceServerClient(y.server.http) as client:
        y.wait_for(answers, f"new sequences to go to version {version}")


def ask(client: Any, key: int, value: int, flags: str = "") -> tuple[int, int]:
    """The sum so far, and which version says so."""
    found = infer(client, ROUTE, value, key, start="s" in flags, end="e" in flags)
    return found // 10, found % 10


def begun(clients: list[Any], version: int = 1) -> list[int]:
    """A sequence of each client, which has had a 1."""
    keys = [next(KEYS) for _ in clients]
    for client, key in zip(clients, keys, strict=True):
        assert ask(client, key, 1, "s") == (1, version)
    return keys


def go_on(clients: list[Any], keys: list[int], version: int = 1) -> None:
    """Each sequence of `begun` to its end."""
    for client, key in zip(clients, keys, strict=True):
        assert ask(client, key, 2) == (3, version)
        assert ask(client, key, 3, "e") == (6, version)


def live(y: Yard) -> dict[str, int]:
    """How many sequences live, by version."""
    text = y.server.get("/metrics", y.server.metrics_port)[1].decode()
    found = re.findall(r'^modelyard_sequences_live{.*version="(.)"} (\d+)$', text, re.MULTILINE)
    return {version: int(count) for version, count in found if count != "0"}


def workers(y: Yard) -> int:
    return len(y.server.children(f"worker {MODEL}"))


def test_sequences_stay_on_their_arm_through_changes_of_weights_and_the_kill_switch(
    served: Yard, clients: list[Any]
) -> None:
    put(served, 100, 0)
    former = begun(clients)
    put(served, 0, 100)
    later = begun(clients, 2)
    assert served.api("POST", f"/routes/{ROUTE}/kill", {})[0] == 200
    in_force(served, 1)
    go_on(clients, later, 2)
    assert served.api("DELETE", f"/routes/{ROUTE}/kill")[0] == 200
    in_force(served, 2)
    go_on(clients, former, 1)
    assert live(served) == {}


def test_start_on_another_arm_ends_the_copy_on_the_arm_before(
    served: Yard, clients: list[Any]
) -> None:
    put(served, 100, 0)
    keys = begun(clients)
    assert live(served) == {"1": 3}
    put(served, 0, 100)
    for client, key in zip(clients, keys, strict=True):
        assert ask(client, key, 1, "s") == (1, 2)
    assert live(served) == {"2": 3}
    go_on(clients, keys, 2)


def test_sequences_end_on_their_version_after_a_rollout_has_promoted_the_next(
    served: Yard, clients: list[Any]
) -> None:
    work = served.repository("vision")
    folder = write_running_sum(work, "summing", IDLE, extra="version_policy { all {} }")
    shutil.copytree(folder / "1", folder / "2")
    served.commit(work, "versions")
    served.push(work)
    served.wait_versions("summing", 1, 2)
    whole = [{"name": "stable", "model": "summing", "version": 1, "weight": 100}]
    assert served.api("PUT", "/routes/summing", {"arms": whole})[0] == 200
    served.wait_for(lambda: answered_by(clients[0]) == "1", "the route to be in force")
    keys = [next(KEYS) for _ in clients]
    for client, key in zip(clients, keys, strict=True):
        assert infer(client, "summing", 1, key, start=True) == 1
    body = {"name": "summing", "candidate": 2, "plan": PLAN}
    status, made = served.api("POST", "/rollouts", body)
    assert status == 201, made

    def is_promoted() -> bool:
        return (answered_by(clients[0]), rollout(served, made["id"])["phase"]) == ("2", "healthy")

    served.wait_for(is_promoted, "the rollout to promote")
    for client, key in zip(clients, keys, strict=True):
        assert infer(client, "summing", 2, key) == 3
        assert infer(client, "summing", 3, key, end=True) == 6


def answered_by(client: Any) -> str:
    """The version that a new sequence meets; "" while there is none."""
    try:
        found = client.infer(
            "summing",
            [input_of(client, 1)],
            sequence_id=next(KEYS),
            sequence_start=True,
            sequence_end=True,
        )
    except InferenceServerException:
        return ""
    return str(found.get_response()["model_version"])


def test_sequences_end_on_the_old_copy_of_their_version_after_a_reload(
    served: Yard, clients: list[Any]
) -> None:
    put(served, 100, 0)
    keys = begun(clients)
    before = workers(served)
    write(served.folder, "# another digest\n")
    served.wait_for(
        lambda: f"{MODEL} 1: DRAINING" in served.server.log(), "the versions to be loaded again"
    )
    go_on(clients, keys, 1)
    served.wait_for(lambda: workers(served) == before, "the old version to be closed")


def test_server_that_dies_gives_each_client_one_error_and_knows_no_sequence_afterwards(
    served: Yard, clients: list[Any]
) -> None:
    put(served, 100, 0)
    keys = begun(clients)
    served.kill()
    for client, key in zip(clients, keys, strict=True):
        with pytest.raises((InferenceServerException, OSError)):
            ask(client, key, 2)
    served.start()
    served.wait_versions(MODEL, 1, 2)
    in_force(served, 1)
    again = grpc_client.InferenceServerClient(served.server.grpc)
    for key in keys:
        with pytest.raises(InferenceServerException, match="must specify the START flag"):
            ask(again, key, 2)
        assert ask(again, key, 4, "se") == (4, 1)
    again.close()


def test_server_that_stops_answers_the_sequences_it_has_and_begins_no_other(
    served: Yard, clients: list[Any]
) -> None:
    put(served, 100, 0)
    keys = begun(clients)
    served.server.process.send_signal(signal.SIGTERM)
    served.wait_for(lambda: "stopping: draining" in served.server.log(), "it to stop")
    with pytest.raises(InferenceServerException) as caught:
        ask(clients[1], next(KEYS), 1, "s")
    assert "UNAVAILABLE" in str(caught.value.status())
    with grpc_client.InferenceServerClient(served.server.grpc) as another:
        assert ask(another, keys[0], 1) == (2, 1), "on a connection of its own"
        assert ask(another, keys[0], -1) == (1, 1)
    go_on(clients, keys, 1)
    assert served.server.process.wait(60) == 0
    served.start()

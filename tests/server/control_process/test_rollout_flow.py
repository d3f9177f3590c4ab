"""A pushed version takes over step by step, or is rolled back, while clients are sending."""

import json
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest

from support.yard import Yard, yard

PLAN = {
    "rollout": "progressive",
    "rollout.mirror": "0",
    "rollout.steps": "20, 50, 100",
    "rollout.hold": "1s",
    "rollout.min_sample": "60",
    "rollout.window": "1s",
    # Errors are what is looked at here, on a machine that may have other work.
    "rollout.latency_ratio": "50",
    "rollout.latency_pause_ratio": "40",
}

MODEL = """
import os

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.count = 0

    def execute(self, requests):
        answers = []
        for request in requests:
            self.count += 1
            if {dies} and self.count == {dies} and not os.path.exists("{marker}"):
                open("{marker}", "w").close()
                os._exit(3)
            if {fails} and self.count % {fails} == 0:
                error = pb_utils.TritonError("out of luck")
                answers.append(pb_utils.InferenceResponse(error=error))
                continue
            tensor = pb_utils.Tensor("OUT", np.array([{number}], np.int64))
            answers.append(pb_utils.InferenceResponse([tensor]))
        return answers
"""

CONFIG = """
backend: "python"
input {{ name: "IN" data_type: TYPE_INT64 dims: [ 1 ] }}
output {{ name: "OUT" data_type: TYPE_INT64 dims: [ 1 ] }}
instance_group {{ kind: KIND_CPU count: {instances} }}
{parameters}
"""


def write_counted(
    work: Path, name: str, number: int, fails: int = 0, dies: int = 0, **plan: str
) -> None:
    """A version that answers with its number. One request in `fails` does; of two workers the first
    that has had so many `dies`."""
    home = work / "models" / name
    (home / str(number)).mkdir(parents=True)
    text = MODEL.replace("{number}", str(number))
    text = text.replace("{fails}", str(fails)).replace("{dies}", str(dies))
    text = text.replace("{marker}", str(work.parent / "marks" / f"{name}-{number}-died"))
    (home / str(number) / "model.py").write_text(text)
    rows = "\n".join(
        f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}'
        for key, value in (PLAN | plan).items()
    )
    (home / "config.pbtxt").write_text(CONFIG.format(parameters=rows, instances=2 if dies else 1))


class Clients:
    """Threads that send one request after the other and count who answered."""

    def __init__(self, port: int, model: str) -> None:
        self.answers: Counter[int] = Counter()
        self.errors: Counter[str] = Counter()
        self._port, self._model = port, model
        self._over = threading.Event()

    def run(self) -> None:
        connection = HTTPConnection("127.0.0.1", self._port, timeout=60)
        body = json.dumps(
            {"inputs": [{"name": "IN", "datatype": "INT64", "shape": [1], "data": [1]}]}
        )
        while not self._over.is_set():
            connection.request("POST", f"/v2/models/{self._model}/infer", body)
            answer = connection.getresponse()
            found = json.loads(answer.read())
            if answer.status == 200:
                self.answers[found["outputs"][0]["data"][0]] += 1
            else:
                self.errors[found["error"]] += 1
        connection.close()

    def stop(self) -> None:
        self._over.set()


@contextmanager
def sending(y: Yard, model: str, count: int = 4) -> Iterator[Clients]:
    clients = Clients(y.server.http_port, model)
    threads = [threading.Thread(target=clients.run) for _ in range(count)]
    for thread in threads:
        thread.start()
    try:
        yield clients
    finally:
        clients.stop()
        for thread in threads:
            thread.join(60)


@pytest.fixture(scope="module")
def y(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("yard")
    marks = folder / "marks"
    marks.mkdir()
    with yard(folder, worker_sandbox_allow_write=marks) as made:
        yield made


def rollout_of(y: Yard, name: str) -> dict[str, Any]:
    """The newest of a name."""
    found = y.api("GET", f"/rollouts?name={name}")[1]["items"]
    return dict(found[0]) if found else {}


def pushed(y: Yard, work: Path, message: str) -> None:
    y.commit(work, message)
    y.push(work)


@pytest.mark.slow
def test_a_good_version_takes_over_and_a_failing_one_is_rolled_back(y: Yard) -> None:
    settings = {"formats": ["python", "config"]}
    work = y.repository("counted", **settings)
    write_counted(work, "c", 1)
    pushed(y, work, "first")
    y.wait_versions("c", 1)
    with sending(y, "c") as clients:
        write_counted(work, "c", 2)
        pushed(y, work, "second")
        y.wait_for(lambda: rollout_of(y, "c").get("phase") == "healthy", "v2 to be healthy", 180)
        assert not clients.errors
        write_counted(work, "c", 3, fails=4)
        pushed(y, work, "third, which fails one in four")
        y.wait_for(lambda: rollout_of(y, "c").get("phase") == "degraded", "v3 rolled back", 180)
        assert set(clients.errors) <= {"out of luck"}
    with sending(y, "c", 1) as after:
        y.wait_for(lambda: sum(after.answers.values()) > 50, "answers after it was rolled back")
    assert set(after.answers) == {2}


@pytest.mark.slow
def test_a_version_whose_worker_crashes_is_rolled_back_and_the_reason_says_so(y: Yard) -> None:
    """It has two workers, so that it answers on while the dead one is started again."""
    work = y.repository("crashing", formats=["python", "config"])
    write_counted(work, "k", 1)
    pushed(y, work, "first")
    y.wait_versions("k", 1)
    with sending(y, "k") as clients:
        write_counted(work, "k", 2, dies=20)
        pushed(y, work, "second, whose workers crash")
        y.wait_for(lambda: rollout_of(y, "k").get("phase") == "degraded", "v2 rolled back", 180)
    reason = rollout_of(y, "k")["reason"]
    assert reason == "rolled back: its worker crashed once"
    assert all("died" in error or "process" in error for error in clients.errors), clients.errors

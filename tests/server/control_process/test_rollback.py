"""A model is rolled back: after a push, during a rollout, to what is not loaded, by steps."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from support.yard import Yard, write_identity, yard

pytestmark = pytest.mark.slow

CONFIG = """
backend: "python"
input { name: "INPUT0" data_type: TYPE_FP32 dims: [ -1, 1 ] }
output { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ -1, 1 ] }
"""
MODEL = """
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        {begin}

    def execute(self, requests):
        inputs = [pb_utils.get_input_tensor_by_name(one, "INPUT0") for one in requests]
        tensors = [pb_utils.Tensor("OUTPUT0", one.as_numpy()) for one in inputs]
        return [pb_utils.InferenceResponse([one]) for one in tensors]
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """Models `after` and `during` with the versions 1 to 3, and `broken` whose first version cannot
    be loaded; of each the newest alone is loaded."""
    with yard(tmp_path_factory.mktemp("rollback")) as y:
        work = y.repository("vision", formats=["python", "config", "labels"])
        home = work / "models" / "broken"
        for number in (1, 2, 3):
            write_identity(work, "after", number)
            write_identity(work, "during", number)
            (home / str(number)).mkdir(parents=True)
            begin = 'raise RuntimeError("weights missing")' if number == 1 else "pass"
            (home / str(number) / "model.py").write_text(MODEL.replace("{begin}", begin))
            (home / "config.pbtxt").write_text(CONFIG)
            y.commit(work, f"version {number}")
            y.push(work)
        for model in ("after", "during", "broken"):
            y.wait_versions(model, 3)
        yield y


def answering(y: Yard, model: str) -> int:
    """The version that answers who names none."""
    tensor = {"name": "INPUT0", "shape": [1, 1], "datatype": "FP32", "data": [1]}
    status, found = y.server.post(f"/v2/models/{model}/infer", {"inputs": [tensor]})
    assert status == 200, found
    return int(json.loads(found)["model_version"])


def rollout(y: Yard, identity: str) -> dict[str, Any]:
    return dict(y.api("GET", f"/rollouts/{identity}")[1])


def test_a_version_that_was_unloaded_is_loaded_and_answers_again(running: Yard) -> None:
    assert answering(running, "after") == 3
    said = running.cli("rollback", "after", "--why", "it is too slow")
    assert "after: version 2 has all traffic again" in said
    running.wait_for(lambda: answering(running, "after") == 2, "version 2 to answer")
    (lost,) = running.api("GET", "/models/after/rollback")[1]["rolled_back"]
    assert lost["version"] == 3
    assert "it is too slow" in lost["reason"]


def test_during_a_rollout_it_ends_and_the_stable_version_answers_all(running: Yard) -> None:
    arms = [{"name": "stable", "model": "during", "version": 2, "weight": 100}]
    assert running.api("PUT", "/routes/during", {"arms": arms})[0] == 200
    running.wait_versions("during", 2, 3)
    body = {"name": "during", "candidate": 3, "plan": {"mirror": 0, "steps": "50", "hold": "1h"}}
    status, begun = running.api("POST", "/rollouts", body)
    assert status == 201, begun
    running.wait_for(lambda: rollout(running, begun["id"])["phase"] == "step", "the step")
    said = running.cli("rollback", "during")
    assert "the rollout of version 3 was ended, and version 2 has all traffic again" in said
    assert rollout(running, begun["id"])["phase"] == "degraded"
    running.wait_for(
        lambda: {answering(running, "during") for _ in range(20)} == {2}, "version 2 alone"
    )


def test_a_version_that_cannot_be_loaded_leaves_all_as_it_was_and_says_so(running: Yard) -> None:
    said = running.cli("rollback", "broken", "--to", "1", ok=False)
    assert "not gone back, all traffic stays: it failed" in said
    assert "weights missing" in said
    assert answering(running, "broken") == 3
    assert running.api("GET", "/models/broken/rollback")[1]["rolled_back"] == []


def test_it_goes_by_steps(running: Yard) -> None:
    running.cli("rollback", "broken", "--to", "2", "--steps", "50", "--no-wait")
    (one,) = running.api("GET", "/rollouts?name=broken&limit=1")[1]["items"]
    running.wait_for(lambda: rollout(running, one["id"])["weight"] == 50, "half of the traffic")
    assert "have all traffic" not in running.cli("rollback", "broken", "--to", "3")
    assert rollout(running, one["id"])["phase"] == "degraded"

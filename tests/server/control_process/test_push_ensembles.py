"""An ensemble that is pushed reaches no model that its publisher may not use."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.yard import Yard, write_identity, yard

pytestmark = pytest.mark.slow

ENSEMBLE = """
name: "NAME"
platform: "ensemble"
max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: -1 }
output { name: "Y" data_type: TYPE_FP32 dims: -1 }
ensemble_scheduling {
  step {
    model_name: "STEP" model_version: -1
    input_map { key: "INPUT0" value: "X" }
    output_map { key: "OUTPUT0" value: "Y" }
  }
}
"""


@pytest.fixture(scope="module")
def y(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("yard")) as made:
        secret = made.repository("secrets")
        write_identity(secret, "hidden", 1)
        made.commit(secret, "a model of others")
        made.push(secret)
        made.wait_versions("hidden", 1)
        yield made


def write_ensemble(work: Path, name: str, step: str) -> None:
    folder = work / "models" / name / "1"
    folder.mkdir(parents=True)
    (folder / ".gitkeep").write_text("")
    text = ENSEMBLE.replace("NAME", name).replace("STEP", step)
    (folder.parent / "config.pbtxt").write_text(text)


def test_an_ensemble_of_models_of_the_same_push_is_served(y: Yard) -> None:
    work = y.repository("pipelines")
    y.log_in("push:pipelines:*")
    write_identity(work, "part", 1)
    write_ensemble(work, "whole", "part")
    y.commit(work, "an ensemble and its step")
    said = y.push(work)
    y.wait_versions("whole", 1)
    body = {"inputs": [{"name": "X", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}]}
    status, answer = y.server.post("/v2/models/whole/infer", body)
    assert status == 200, (said, answer)
    assert json.loads(answer)["outputs"][0]["data"] == [1.0, 2.0]


def test_an_ensemble_of_a_model_that_its_publisher_may_not_use_is_refused(y: Yard) -> None:
    work = y.repository("thieves")
    y.log_in("push:thieves:*")
    write_ensemble(work, "way_round", "hidden")
    y.commit(work, "a way to a model of others")
    said = y.push(work, ok=False)
    assert "E455" in said
    assert "'hidden'" in said
    assert y.versions("way_round") == []


def test_who_deploys_a_stored_commit_answers_for_its_callees_and_is_told_of_them(y: Yard) -> None:
    work = y.repository("drafts")
    y.log_in("push:drafts:*")
    write_ensemble(work, "by_hand", "hidden")
    y.git(work, "checkout", "-q", "-b", "draft")
    commit = y.commit(work, "a way to a model of others, on another branch")
    said = y.push(work, "draft")
    assert "warning" in said
    assert "E455" in said
    deployed = y.cli_json("repo", "deploy", "drafts", commit)
    y.wait_versions("by_hand", 1)
    assert "E455" in deployed["report"]
    assert "'hidden'" in deployed["report"]

"""A job on a real server, from the command line to the version that it makes."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.imports import onnx_model
from support.yard import Yard, yard

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def y(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    """`scaled` 1 lies in a model folder."""
    folder: Path = tmp_path_factory.mktemp("yard")
    version = folder / "models" / "scaled" / "1"
    version.mkdir(parents=True)
    (version / "model.onnx").write_bytes(onnx_model(2.0))
    with yard(folder) as made:
        made.wait_versions("scaled", 1)
        yield made


def answer(y: Yard, path: str) -> list[float]:
    sent = {"name": "x", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}
    status, body = y.server.post(f"/v2/models/{path}/infer", {"inputs": [sent]})
    assert status == 200, body
    return list(json.loads(body)["outputs"][0]["data"])


def test_a_job_makes_a_version_with_lineage_and_report(y: Yard) -> None:
    made = y.cli_json("job", "optimise", "scaled", "--version", "1", "--follow")
    assert (made["state"], made["result"]["model"], made["result"]["version"]) == (
        "done", "scaled-optimised", 1
    )  # fmt: skip
    version = y.cli_json("version", "show", "scaled-optimised", "1")
    assert version["lineage"]["job"] == made["id"]
    assert (version["lineage"]["model"], version["lineage"]["version"]) == ("scaled", 1)
    assert "accepted" in y.cli("job", "report", made["id"])
    y.wait_versions("scaled-optimised", 1)
    assert answer(y, "scaled-optimised") == [2, 4, 6, 8]
    assert made["id"] in y.cli("job", "list", "--type", "optimise")


def test_the_next_version_is_loaded_and_the_one_before_goes_on_answering(y: Yard) -> None:
    version = ("--version", "1")  # whose load the control process may not have heard of yet
    y.cli("job", "optimise", "scaled-optimised", *version, "--set", "weights=fp16", "--follow")
    y.wait_versions("scaled-optimised", 1, 2)
    (route,) = y.cli_json("route", "list")
    assert [(arm["name"], arm["version"]) for arm in route["arms"]] == [("stable", 1)]
    assert answer(y, "scaled-optimised/versions/2") == [2, 4, 6, 8]


def test_a_job_that_cannot_be_done_says_why_and_makes_nothing(y: Yard) -> None:
    said = y.cli("job", "quantise", "scaled", "--version", "1", "--follow", ok=False)
    assert "failed: " in said
    (failed,) = y.cli_json("job", "list", "--type", "quantise")
    assert (failed["state"], failed["result"]["version"]) == ("failed", None)
    said = y.cli("job", "quantise", "nobody", ok=False)
    assert "there is no model 'nobody'" in said

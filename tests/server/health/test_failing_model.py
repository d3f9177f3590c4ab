"""A model that fails every request is red everywhere, since when the gateway saw it."""

import os
import re
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from support.yard import Yard, write_identity, yard

pytestmark = pytest.mark.slow

FAILS = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        raise ValueError("the scaler was not fitted")
"""
ALL_FAILED = re.compile(r"(\d\d) of \1 requests failed from ")
"""Nearly all 61: the first few may have begun in the period before."""
CONFIG = 'backend: "python" output { name: "OUT" data_type: TYPE_FP32 dims: 1 }'
IDENTITY_BODY = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [1.0]}]}


@pytest.fixture(scope="module")
def y(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    folder = tmp_path_factory.mktemp("failing")
    write_identity(folder, "identity", 1)
    for name, code in (("scaler", FAILS), ("broken", "import nothing_there")):
        version = folder / "models" / name / "1"
        version.mkdir(parents=True)
        (version / "model.py").write_text(code)
        (version.parent / "config.pbtxt").write_text(CONFIG)
    with yard(folder, strict_readiness=False) as one:
        for _ in range(61):
            assert one.server.post("/v2/models/scaler/infer", {"inputs": []})[0] == 500
            assert one.server.post("/v2/models/identity/infer", IDENTITY_BODY)[0] == 200
        one.wait_for(lambda: health(one, "scaler")["state"] == "FAILING", "scaler to be failing")
        yield one


def health(y: Yard, model: str) -> dict[str, Any]:
    """As the API says it; its state is "" until the gateway has reported."""
    rows = [row for row in y.api("GET", f"/loads?model={model}")[1]["items"] if row["version"]]
    return dict(rows[0]["health"]) if rows else {"state": ""}


def states(y: Yard) -> set[str]:
    """Of the metric: model, version, state, reason code."""
    text = y.server.get("/metrics", y.server.metrics_port)[1].decode()
    return {line for line in text.splitlines() if line.startswith("modelyard_model_state{")}


def test_the_api_says_that_it_fails_and_how(y: Yard) -> None:
    found = health(y, "scaler")
    assert (found["state"], found["reason_code"]) == ("FAILING", "errors")
    assert ALL_FAILED.match(found["reason"])
    assert (health(y, "identity")["state"], health(y, "broken")["state"]) == ("READY", "FAILED")


def test_the_metric_says_it_of_every_version_also_of_one_that_failed_to_load(y: Yard) -> None:
    assert states(y) == {
        f'modelyard_model_state{{model="{model}",version="1",state="{state}",'
        f'reason_code="{code}"}} 1'
        for model, state, code in (
            ("broken", "FAILED", "load_error"),
            ("identity", "READY", "ok"),
            ("scaler", "FAILING", "errors"),
        )
    }


def test_the_command_line_says_it_with_the_sentence(y: Yard) -> None:
    by_model = {one["model"]: one for one in y.cli_json("status")["versions"]}
    assert by_model["scaler"]["state"] == "FAILING"
    assert by_model["scaler"]["reason_code"] == "errors"
    said = y.cli("status").partition("scaler 1: ")[2]
    assert ALL_FAILED.match(said)


def test_readiness_is_as_it_was(y: Yard) -> None:
    assert y.server.get("/v2/models/scaler/ready")[0] == 200


def test_it_was_one_event(y: Yard) -> None:
    status, page = y.api("GET", "/events?kind=model.*&newest=true")
    assert status == 200
    judged = [one for one in page["items"] if one["kind"] != "model.recovered"]
    assert [(one["kind"], one["subject"]) for one in judged] == [("model.failing", "model:scaler")]
    assert judged[0]["data"]["since"] == health(y, "scaler")["since"]


def test_since_when_survives_a_restart_of_either_process(y: Yard) -> None:
    before = health(y, "scaler")
    pid = y.control_pid()
    os.kill(pid, signal.SIGKILL)
    y.wait_for(lambda: y.control_pid() not in (0, pid) and y.answers(), "another process")
    assert health(y, "scaler") == before
    y.again()
    y.wait_for(lambda: health(y, "scaler")["state"] == "FAILING", "scaler to be failing")
    assert health(y, "scaler")["since"] == before["since"]
    test_it_was_one_event(y)

"""Drift of a whole server: a shifted stream of requests is found, told, and seen by a rollout."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton_http
from onnx import TensorProto, helper

from support.webhook_receiver import Receiver, receiver
from support.yard import Yard, yard

pytestmark = pytest.mark.slow

FEATURES, ROWS = 3, 8
ROUNDS = 40
"""Requests at a time, of 8 rows each: more than a smallest sample."""


def classifier(bias: float) -> bytes:
    """The scores of "low" and "high": -x0 and x0 + bias."""
    weights = np.zeros((FEATURES, 2), np.float32)
    weights[0] = (-1, 1)
    nodes = [
        helper.make_node("MatMul", ["x", "w"], ["s"]),
        helper.make_node("Add", ["s", "b"], ["scores"]),
    ]
    graph = helper.make_graph(
        nodes,
        "classifier",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", FEATURES])],
        [helper.make_tensor_value_info("scores", TensorProto.FLOAT, ["n", 2])],
        [
            helper.make_tensor("w", TensorProto.FLOAT, [FEATURES, 2], weights.ravel()),
            helper.make_tensor("b", TensorProto.FLOAT, [2], [0.0, bias]),
        ],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    return bytes(model.SerializeToString())


CONFIG = """
max_batch_size: 16
input { name: "x" data_type: TYPE_FP32 dims: [3] }
output { name: "scores" data_type: TYPE_FP32 dims: [2] label_filename: "labels.txt" }
"""


def write_model(folder: Path, *biases: float) -> None:
    home = folder / "score"
    for number, bias in enumerate(biases, 1):
        (home / str(number)).mkdir(parents=True, exist_ok=True)
        (home / str(number) / "model.onnx").write_bytes(classifier(bias))
    (home / "labels.txt").write_text("low\nhigh\n")
    (home / "config.pbtxt").write_text(CONFIG + "version_policy { all {} }\n")


def send(y: Yard, shift: float, seed: int, version: str = "", model: str = "score") -> None:
    drawn = np.random.default_rng(seed)
    client = triton_http.InferenceServerClient(f"127.0.0.1:{y.server.http_port}")
    for _ in range(ROUNDS):
        rows = drawn.normal(size=(ROWS, FEATURES)).astype(np.float32)
        rows[:, 0] += np.float32(shift)
        tensor = triton_http.InferInput("x", [ROWS, FEATURES], "FP32")
        tensor.set_data_from_numpy(rows)
        client.infer(model, [tensor], model_version=version)
    client.close()


def report(y: Yard) -> dict[str, Any]:
    status, found = y.api("GET", "/drift/score")
    assert status == 200, found
    return dict(found)


def of_version(y: Yard, number: int) -> dict[str, Any]:
    return next((one for one in report(y)["versions"] if one["version"] == number), {})


def metrics(y: Yard) -> str:
    url = f"http://127.0.0.1:{y.server.metrics_port}/metrics"
    with urllib.request.urlopen(url, timeout=60) as answer:
        return str(answer.read().decode())


@pytest.fixture(scope="module")
def hooked() -> Iterator[Receiver]:
    with receiver() as found:
        yield found


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory, hooked: Receiver) -> Iterator[Yard]:
    """A server whose model has a reference of what it got at first."""
    folder = tmp_path_factory.mktemp("drift")
    (folder / "models").mkdir()
    write_model(folder / "models", 0.0, 0.0)
    with yard(folder, drift_window_secs=1, notification_allow=hooked.url) as y:
        y.wait_versions("score", 1, 2)
        y.wait_for(lambda: y.api("GET", "/loads")[1]["items"] != [], "loads to be told")
        body = {"name": "on-call", "url": hooked.url, "kinds": ["model.drifted"]}
        assert y.api("POST", "/webhooks", body)[0] == 201
        y.cli(
            "drift", "watch", "score", "--window", "10s", "--min-sample", "200",
            "--per-second", "1000",
        )  # fmt: skip
        y.wait_for(lambda: watch_begins(y), "the gateway to count", 60)
        y.wait_for(lambda: refers(y), "a reference", 60)
        yield y


def watch_begins(y: Yard) -> bool:
    send(y, 0.0, 1, "2")
    return of_version(y, 2).get("requests", 0) > 0


def refers(y: Yard) -> bool:
    """Once what was sent has been stored."""
    send(y, 0.0, 2, "2")
    body = {"kind": "window", "version": 2, "since": "2026-01-01T00:00:00Z"}
    return y.api("PUT", "/drift/score/reference", body)[0] == 200


def test_a_stream_like_the_reference_is_stable(watched: Yard) -> None:
    def stable() -> bool:
        send(watched, 0.0, 3, "2")
        return of_version(watched, 2).get("state") == "stable"

    watched.wait_for(stable, "a verdict", 60)
    names = {(one["role"], one["name"]) for one in of_version(watched, 2)["features"]}
    assert names == {
        ("input", "x[0]"),
        ("input", "x[1]"),
        ("input", "x[2]"),
        ("label", "scores"),
        ("confidence", "scores.confidence"),
    }


def test_a_shifted_stream_is_found_and_told(watched: Yard, hooked: Receiver) -> None:
    def drifted() -> bool:
        send(watched, 1.5, 4, "2")
        return of_version(watched, 2).get("state") == "drifted"

    watched.wait_for(drifted, "drift", 60)
    features = of_version(watched, 2)["features"]
    states = {one["name"]: one["state"] for one in features}
    assert (states["x[0]"], states["x[1]"], states["x[2]"]) == ("drifted", "stable", "stable")
    assert states["scores"] == "drifted"
    bins = next(one for one in features if one["name"] == "scores")["bins"]
    assert {one["name"] for one in bins} == {"low", "high"}

    shown = watched.cli("drift", "show", "score", "--version", "2")
    assert "x[0]" in shown.splitlines()[1] or "scores" in shown.splitlines()[1]
    problems = watched.api("GET", "/problems")[1]["items"]
    assert [one["title"] for one in problems if one["kind"] == "drift"] == [
        "score version 2 has drifted"
    ]
    kinds = [one["kind"] for one in watched.api("GET", "/events?limit=200")[1]["items"]]
    assert kinds.count("model.drifted") == 1

    watched.wait_for(lambda: bool(hooked.messages), "a message", 60)
    assert "score version 2 has drifted" in hooked.messages[0].body.decode()
    label = 'model="score",version="2",feature="input x[0]"'
    watched.wait_for(
        lambda: f"modelyard_drift_detected{{{label}}} 1" in metrics(watched), "the metric", 30
    )


def test_a_window_is_a_profile_for_a_file(watched: Yard) -> None:
    out = watched.folder / "drift_profile.json"
    watched.cli(
        "drift", "profile", "score", "--version", "2", "--since", "2026-01-01T00:00:00Z",
        "-o", str(out),
    )  # fmt: skip
    assert json.loads(out.read_text())["format"] == 1
    watched.cli("drift", "reference", "score", "--profile", str(out))
    assert report(watched)["watch"]["reference"]["kind"] == "profile"


def test_what_cannot_be_is_refused_in_words(watched: Yard) -> None:
    status, found = watched.api("PUT", "/drift/absent", {})
    assert (status, "no server has a model 'absent'" in str(found)) == (404, True)
    body = {"kind": "window", "version": 9, "since": "2026-01-01T00:00:00Z"}
    status, found = watched.api("PUT", "/drift/score/reference", body)
    assert (status, "takes 200 (min_sample)" in str(found)) == (422, True), found
    assert watched.api("GET", "/drift/absent")[0] == 404
    said = watched.cli("drift", "reference", "score", ok=False)
    assert "give one of --version, --profile, --pushed and --none" in said


def test_unwatching_forgets_all(watched: Yard) -> None:
    watched.cli("drift", "unwatch", "score")
    assert watched.api("GET", "/drift")[1]["items"] == []
    watched.wait_for(
        lambda: 'modelyard_drift_state{model="score"' not in metrics(watched), "metrics to go", 30
    )

"""A classifier whose drift is watched, and streams of requests to it."""

import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import tritonclient.http as triton_http
from onnx import TensorProto, helper

from support.yard import Yard

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


def watch(y: Yard) -> None:
    """Watch it with a window of ten seconds, against what version 2 got first; the server sends
    windows of a second."""
    y.wait_versions("score", 1, 2)
    y.wait_for(lambda: y.api("GET", "/loads")[1]["items"] != [], "loads to be told")
    y.cli(
        "drift", "watch", "score", "--window", "10s", "--min-sample", "200",
        "--per-second", "1000",
    )  # fmt: skip
    y.wait_for(lambda: _is_counted(y), "the gateway to count", 60)
    y.wait_for(lambda: _has_reference(y), "a reference", 60)


def send_until(y: Yard, state: str, shift: float, feature: str = "scores") -> None:
    """Requests to version 2 until a feature of it is in that state."""

    def there() -> bool:
        send(y, shift, 3, "2")
        features = of_version(y, 2).get("features", ())
        return any((one["name"], one["state"]) == (feature, state) for one in features)

    y.wait_for(there, f"version 2 {feature} to be {state}", 60)


def _is_counted(y: Yard) -> bool:
    send(y, 0.0, 1, "2")
    return of_version(y, 2).get("requests", 0) > 0


def _has_reference(y: Yard) -> bool:
    """Once what was sent has been stored."""
    send(y, 0.0, 2, "2")
    body = {"kind": "window", "version": 2, "since": "2026-01-01T00:00:00Z"}
    return y.api("PUT", "/drift/score/reference", body)[0] == 200

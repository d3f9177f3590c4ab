"""Metrics of models' own on /metrics, and models that load and unload others, for real."""

import json
import os
import signal
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from tritonclient.grpc import InferenceServerClient, InferInput
from tritonclient.utils import InferenceServerException

from support.scripts import write_python, write_rows
from support.server import Server, running

COUNTING = """
class TritonPythonModel:
    def initialize(self, args):
        kinds = pb_utils.MetricFamily
        self.rows = kinds("script_rows_total", "Rows, by size", kinds.COUNTER)
        self.level = kinds(name="script_level", description="As told", kind=kinds.GAUGE)
        self.sizes = kinds("script_sizes", "Of rows", kinds.HISTOGRAM)
        self.seen = self.rows.Metric(labels={"size": 'large "x"'})
        self.told = self.level.Metric()
        self.size = self.sizes.Metric(labels={}, buckets=[1, 4])

    def execute(self, requests):
        return [self.one(request) for request in requests]

    def one(self, request):
        array = request.inputs()[0].as_numpy()
        if "wrong" in order(request):
            return self.wrong(order(request)["wrong"])
        self.seen.increment(1)
        self.told.set(float(array[0, 0]))
        self.size.observe(array.shape[1])
        return answer(np.array([[self.seen.value()]], np.float32))

    def wrong(self, what):
        try:
            {
                "decrement": lambda: self.seen.increment(-1),
                "set": lambda: self.seen.set(1),
                "value": lambda: self.size.value(),
                "again": lambda: pb_utils.MetricFamily("script_level", "x", "gauge"),
                "ours": lambda: pb_utils.MetricFamily("nv_mine", "x", "gauge"),
            }[what]()
        except pb_utils.TritonModelException as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(error.message()))
"""

CONFLICTING = """
class TritonPythonModel:
    def initialize(self, args):
        self.rows = pb_utils.MetricFamily("script_rows_total", "Other", "gauge")

    def execute(self, requests):
        return []
"""

CONTROLLING = """
class TritonPythonModel:
    def execute(self, requests):
        return [self.one(order(request)) for request in requests]

    def one(self, given):
        try:
            if given["verb"] == "load":
                pb_utils.load_model(given["target"], config=given.get("config", ""))
            elif given["verb"] == "unload":
                pb_utils.unload_model(given["target"])
            ready = pb_utils.is_model_ready(given["target"])
        except pb_utils.TritonModelException as error:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError(error.message()))
        return answer(np.array([[float(ready)]], np.float32))
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    root = tmp_path_factory.mktemp("models")
    write_rows(root, "rows")
    for name, code in (
        ("counting", COUNTING),
        ("conflicting", CONFLICTING),
        ("controlling", CONTROLLING),
    ):
        write_python(root, name, code)
    names = ["counting", "controlling"]
    with running(
        root, model_control_mode="explicit", load_model=names, allow_model_control_by_models="true"
    ) as made:
        yield made


@pytest.fixture
def client(server: Server) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(server.grpc) as made:
        yield made


def _infer(client: InferenceServerClient, model: str, *values: float, **order: Any) -> float:
    array = np.array([values or (1.0,)], np.float32)
    tensor = InferInput("IN", list(array.shape), "FP32")
    tensor.set_data_from_numpy(array)
    found = client.infer(model, [tensor], parameters=order).as_numpy("OUT")
    assert found is not None
    return float(found[0, 0])


def _shown(server: Server) -> list[str]:
    status, body = server.get("/metrics", server.metrics_port)
    assert status == 200
    return [line for line in body.decode().splitlines() if "script_" in line]


def _value(server: Server, name: str) -> float | None:
    found = [line for line in _shown(server) if line.startswith(name)]
    return float(found[0].rpartition(" ")[2]) if found else None


def test_metrics_of_a_model_are_on_the_page_of_the_server(
    server: Server, client: InferenceServerClient
) -> None:
    _infer(client, "counting", 5.0, 6.0)
    lines = _shown(server)
    assert "# TYPE script_rows_total counter" in lines
    assert "# HELP script_sizes Of rows" in lines
    assert any(line.startswith('script_rows_total{size="large \\"x\\""} ') for line in lines)
    assert "script_level 5.0" in lines
    assert any(line.startswith('script_sizes_bucket{le="+Inf"}') for line in lines)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ("decrement", "can only be incremented monotonically by non-negative values"),
        ("set", "TRITONSERVER_METRIC_KIND_COUNTER does not support Set"),
        ("value", "TRITONSERVER_METRIC_KIND_HISTOGRAM does not support Value"),
        ("again", "this model has a metric family 'script_level' already"),
        ("ours", "are the server's: 'nv_mine'"),
    ],
)
def test_wrong_use_of_a_metric_raises_in_the_model(
    client: InferenceServerClient, wrong: str, text: str
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        _infer(client, "counting", wrong=wrong)
    assert text in str(caught.value)


def test_count_of_a_worker_that_died_stays(server: Server, client: InferenceServerClient) -> None:
    _infer(client, "counting", 5.0)
    before = _value(server, "script_rows_total")
    assert before
    os.kill(server.children("worker counting")[0], signal.SIGKILL)
    server.wait_for(lambda: _value(server, "script_rows_total") == before, "the worker to be back")
    server.wait_for(lambda: client.is_model_ready("counting"), "the worker to be back")
    _infer(client, "counting", 5.0)
    assert _value(server, "script_rows_total") == before + 1


def test_model_with_a_family_of_another_kind_is_not_loaded_and_the_reason_names_both(
    client: InferenceServerClient,
) -> None:
    with pytest.raises(InferenceServerException) as caught:
        client.load_model("conflicting")
    assert "counter of model 'counting'" in str(caught.value)


def test_metrics_go_with_their_model(server: Server, client: InferenceServerClient) -> None:
    assert _shown(server)
    client.unload_model("counting")
    server.wait_for(lambda: not _shown(server), "the metrics to be gone")
    client.load_model("counting")


def test_model_loads_and_unloads_another_one(client: InferenceServerClient) -> None:
    assert _infer(client, "controlling", verb="ready", target="rows") == 0.0
    assert _infer(client, "controlling", verb="load", target="rows") == 1.0
    assert client.is_model_ready("rows")
    assert _infer(client, "controlling", verb="unload", target="rows") == 0.0
    config = json.dumps(
        {
            "backend": "identity",
            "max_batch_size": 3,
            "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
            "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
        }
    )
    assert _infer(client, "controlling", verb="load", target="rows", config=config) == 1.0
    assert client.get_model_config("rows", as_json=True)["config"]["max_batch_size"] == 3


def test_load_that_fails_raises_in_the_model(client: InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="failed to load 'nobody'"):
        _infer(client, "controlling", verb="load", target="nobody")


def test_control_needs_the_setting(tmp_path_factory: pytest.TempPathFactory) -> None:
    root = tmp_path_factory.mktemp("models")
    write_python(root, "controlling", CONTROLLING)
    with running(root) as server, InferenceServerClient(server.grpc) as client:
        for verb in ("load", "unload", "ready"):
            with pytest.raises(InferenceServerException, match="--allow-model-control-by-models"):
                _infer(client, "controlling", verb=verb, target="controlling")

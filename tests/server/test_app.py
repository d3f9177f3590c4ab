"""A whole server in a process of its own: start, reload under load, shutdown."""

import http.client
import json
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc
import tritonclient.http
from tritonclient.utils import InferenceServerException

from support.server import Server, identity_config, running, write_identity

SLOW_WARMUP = (
    'model_warmup { name: "w" inputs { key: "INPUT0" value '
    "{ data_type: TYPE_FP32 dims: 4 zero_data: true } } }\n"
)


def infer(server: Server, model: str = "m", version: str = "") -> dict[str, object]:
    """One request over REST; the response document."""
    with tritonclient.http.InferenceServerClient(server.http) as client:
        tensor = tritonclient.http.InferInput("INPUT0", [1, 4], "FP32")
        tensor.set_data_from_numpy(np.arange(4, dtype=np.float32)[None])
        answer = client.infer(model, [tensor], model_version=version)
        assert answer.as_numpy("OUTPUT0").tolist() == [[0, 1, 2, 3]]
        response: dict[str, object] = answer.get_response()
        return response


def infer_grpc(server: Server, model: str = "m") -> str:
    with tritonclient.grpc.InferenceServerClient(server.grpc) as client:
        tensor = tritonclient.grpc.InferInput("INPUT0", [1, 4], "FP32")
        tensor.set_data_from_numpy(np.arange(4, dtype=np.float32)[None])
        version: str = client.infer(model, [tensor]).get_response().model_version
        return version


class Traffic:
    """Clients that ask without pause over both protocols; what they were told."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._stop = threading.Event()
        self.versions: list[str] = []
        self.errors: list[str] = []

    def seen(self, version: str, count: int = 20) -> bool:
        return self.versions[-200:].count(version) >= count

    def _ask(self, client_of: object, address: str) -> None:
        kind: object = client_of
        with kind.InferenceServerClient(address) as client:  # type: ignore[attr-defined]
            tensor = kind.InferInput("INPUT0", [1, 4], "FP32")  # type: ignore[attr-defined]
            tensor.set_data_from_numpy(np.ones((1, 4), np.float32))
            while not self._stop.is_set():
                try:
                    response = client.infer("m", [tensor]).get_response()
                except InferenceServerException as error:
                    self.errors.append(str(error))
                    return
                whole = isinstance(response, dict)
                self.versions.append(response["model_version"] if whole else response.model_version)

    @contextmanager
    def flowing(self) -> Iterator["Traffic"]:
        addresses = [
            (tritonclient.http, self._server.http),
            (tritonclient.grpc, self._server.grpc),
        ]
        threads = [threading.Thread(target=self._ask, args=pair) for pair in addresses * 2]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._stop.set()
            for thread in threads:
                thread.join()


def test_both_listeners_answer_and_the_start_is_told_in_one_table(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1, 2)
    with running(tmp_path) as server:
        assert infer(server)["model_version"] == "2"
        assert infer_grpc(server) == "2"
        server.wait_for(lambda: "REST" in server.log(), "the table")
        table = server.log()
        assert re.search(
            r"^model +version +backend +instances +state +seconds +reason$", table, re.M
        )
        assert re.search(r"^m +1 +identity +\d+ × cpu +READY +\d+\.\d\d$", table, re.M)
        assert f"http://{server.http}" in table
        assert 0 <= metric(server, "modelyard_event_loop_stall_seconds_max") < 5
        assert server.stop() == 0


def test_the_server_is_live_but_not_ready_while_models_load(tmp_path: Path) -> None:
    config = identity_config("m", delay_ms=2000, extra=SLOW_WARMUP)
    write_identity(tmp_path, "m", 1, config=config)
    with running(tmp_path, wait=False) as server:
        server.wait_for(lambda: server.is_ready("/v2/health/live"), "the open port")
        assert server.get("/v2/health/ready")[0] == 400
        server.wait_ready()


def test_a_slow_first_load_does_not_delay_the_changes_of_another_model(tmp_path: Path) -> None:
    slow = identity_config("slow", delay_ms=120_000, extra=SLOW_WARMUP)
    write_identity(tmp_path, "slow", 1, config=slow)
    folder = write_identity(tmp_path, "m", 1)
    with running(tmp_path, wait=False) as server:
        server.wait_for(lambda: server.is_ready("/v2/models/m/ready"), "the quick model")
        (folder / "2").mkdir()
        server.wait_for(lambda: infer(server)["model_version"] == "2", "its new version", 60)
        assert not server.is_ready()


def test_a_failed_model_stops_neither_the_server_nor_another_model(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    corrupt = tmp_path / "corrupt" / "1"
    corrupt.mkdir(parents=True)
    (corrupt / "model.onnx").write_bytes(b"not a model")
    with running(tmp_path, strict_readiness=False) as server:
        assert infer(server)["model_version"] == "1"
        row = next(row for row in server.index() if row["name"] == "corrupt")
        assert row["state"] == "UNAVAILABLE"
        assert "model.onnx" in row["reason"]
        assert "ERROR" in server.log()
        assert server.get("/v2/models/corrupt/ready")[0] == 400


def test_versions_come_and_go_under_load_without_a_failed_request(tmp_path: Path) -> None:
    folder = write_identity(tmp_path, "m", 1, 2)
    with running(tmp_path) as server, Traffic(server).flowing() as traffic:
        server.wait_for(lambda: traffic.seen("2"), "answers of version 2")
        (folder / "3").mkdir()
        server.wait_for(lambda: traffic.seen("3"), "answers of version 3")
        (folder / "3").rmdir()
        server.wait_for(lambda: traffic.seen("2"), "answers of version 2 again")
        (folder / "config.pbtxt").write_text(
            identity_config("m", extra='metric_tags { key: "a" value: "b" }')
        )
        server.wait_for(
            lambda: server.log().count("m 2: READY") == 2, "the reload of a changed config"
        )
        (folder / "4").mkdir()
        (folder / "config.pbtxt").write_text("no_such_field: 1")
        server.wait_for(
            lambda: any("no_such_field" in row.get("reason", "") for row in server.index()),
            "the reason",
        )
        asked = len(traffic.versions)
        server.wait_for(lambda: len(traffic.versions) > asked + 50, "more answers")
        assert traffic.errors == []


def one_by_one(delay_ms: int) -> str:
    """A config whose requests run alone, one after the other, so that the rest is pending."""
    text = identity_config("m", delay_ms).replace("dynamic_batching {}\n", "")
    return text + "instance_group { kind: KIND_CPU count: 1 }\n"


@contextmanager
def four_inside(server: Server) -> Iterator[list[str]]:
    """Four requests the server has accepted; afterwards, the versions that answered them."""
    answers: list[str] = []
    asks = [lambda: str(infer(server)["model_version"]), lambda: infer_grpc(server)] * 2
    clients = [threading.Thread(target=lambda ask=ask: answers.append(ask())) for ask in asks]
    for client in clients:
        client.start()
    server.wait_for(
        lambda: metric(server, 'nv_inference_pending_request_count{model="m",version="1"}') == 3,
        "one request running and three pending",
    )
    yield answers
    for client in clients:
        client.join()


def metric(server: Server, name: str) -> float:
    """A metric's value; NaN while it is not there."""
    text = server.get("/metrics", server.metrics_port)[1].decode()
    found = re.search(rf"^{re.escape(name)} (\S+)$", text, re.M)
    return float(found[1]) if found else float("nan")


def test_sigterm_finishes_what_is_inside_and_exits_0(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1, config=one_by_one(1000))
    with running(tmp_path) as server:
        with four_inside(server) as answers:
            server.terminate()
            server.wait_for(lambda: not server.is_ready(), "the end of readiness")
            assert len(answers) < 4
        assert answers == ["1"] * 4
        assert server.wait_exit() == 0


def test_requests_that_outlast_the_exit_timeout_do_not_keep_the_server(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1, config=one_by_one(20_000))
    with running(tmp_path, exit_timeout_secs=0.3) as server:
        url = "/v2/models/m/infer"
        body = json.dumps(
            {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
        )
        connections = [http.client.HTTPConnection(server.http, timeout=60) for _ in range(6)]
        for connection in connections:
            connection.request("POST", url, body)
        server.wait_for(
            lambda: (
                metric(server, 'nv_inference_pending_request_count{model="m",version="1"}') == 5
            ),
            "the requests in flight",
        )
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 50  # the six would take two minutes
        for connection in connections:
            connection.close()


def test_a_second_signal_ends_the_server_at_once(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1, config=one_by_one(300_000))
    with running(tmp_path, exit_timeout_secs=300) as server:
        connection = http.client.HTTPConnection(server.http, timeout=60)
        body = '{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,1],"data":[1]}]}'
        connection.request("POST", "/v2/models/m/infer", body)
        assert server.is_ready()
        server.terminate()
        server.wait_for(lambda: "stopping" in server.log(), "the first signal to be answered")
        server.process.send_signal(signal.SIGINT)
        assert server.wait_exit(60) == 128 + signal.SIGINT
        connection.close()


def test_sigterm_while_a_model_loads_does_not_wait_for_the_load(tmp_path: Path) -> None:
    config = identity_config("m", delay_ms=300_000, extra=SLOW_WARMUP)
    write_identity(tmp_path, "m", 1, config=config)
    with running(tmp_path, wait=False) as server:
        server.wait_for(lambda: "m 1: LOADING" in server.log(), "the load")
        began = time.monotonic()
        assert server.stop() == 0
        assert time.monotonic() - began < 60


@pytest.mark.slow
def test_exit_on_error_ends_with_status_1_and_names_the_model(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    (tmp_path / "corrupt" / "1").mkdir(parents=True)
    (tmp_path / "corrupt" / "1" / "model.onnx").write_bytes(b"not a model")
    with running(tmp_path, wait=False, exit_on_error=True) as server:
        assert server.wait_exit(60) == 1
        assert "failed to load corrupt;" in server.log()


def test_the_log_can_be_read_by_a_machine(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    with running(tmp_path, log_format="json") as server:
        lines = [json.loads(line) for line in server.log().splitlines() if line[:1] == "{"]
        assert any(line["message"].startswith("m 1: READY") for line in lines)
        assert {"time", "level", "logger", "message"} <= lines[0].keys()


def test_explicit_load_and_unload_over_the_wire(tmp_path: Path) -> None:
    write_identity(tmp_path, "m", 1)
    with (
        running(tmp_path, model_control_mode="explicit") as server,
        tritonclient.http.InferenceServerClient(server.http) as client,
    ):
        assert not client.is_model_ready("m")
        client.load_model("m")
        assert infer(server)["model_version"] == "1"
        client.unload_model("m")
        assert not client.is_model_ready("m")
        server.wait_for(
            lambda: server.index()[0].get("reason") == "unloaded", "the end of the unload"
        )
        with pytest.raises(InferenceServerException, match="no such model in the repository"):
            client.load_model("nobody")

"""Trace settings over REST, sampling, and trace files in Triton's form."""

import json
import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton
from tritonclient.utils import InferenceServerException

from support.server import Server, running, write_identity

STEPS = [
    "HTTP_RECV_START",
    "HTTP_RECV_END",
    "REQUEST_START",
    "QUEUE_START",
    "COMPUTE_START",
    "COMPUTE_INPUT_END",
    "COMPUTE_OUTPUT_START",
    "COMPUTE_END",
    "INFER_RESPONSE_COMPLETE",
    "REQUEST_END",
    "HTTP_SEND_START",
    "HTTP_SEND_END",
]
INITIAL = {
    "trace_level": ["TIMESTAMPS"],
    "trace_rate": "1",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_mode": "triton",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    write_identity(folder / "models", "echo")
    write_identity(folder / "models", "other")
    write_identity(folder / "models", "slow", delay_ms=3000)
    flags = ["level=TIMESTAMPS", "rate=1", f"triton,file={folder / 'trace.json'}"]
    with running(folder / "models", trace_config=flags) as one:
        yield one


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    """A client; what a test changed of the settings is given back after it."""
    one = triton.InferenceServerClient(server.http)
    yield one
    none = dict.fromkeys(("trace_level", "trace_rate", "trace_count", "log_frequency"))
    for model in ("echo", "other", None):
        one.update_trace_settings(model_name=model, settings=none)
    one.close()


def infer(client: triton.InferenceServerClient, model: str, request_id: str = "") -> None:
    tensor = triton.InferInput("INPUT0", [1, 3], "FP32")
    tensor.set_data_from_numpy(np.array([[1, 2.5, -3]], np.float32))
    client.infer(model, [tensor], request_id=request_id)


def eventually(true: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline, f"waited 60 s for {what}"
        time.sleep(0.01)


def objects(path: Path, number: int = 0) -> list[dict[str, Any]]:
    """The file's objects, of one trace if a number is given; [] while it is not yet written."""
    text = path.read_text() if path.exists() else ""
    found = json.loads(text) if text.endswith("]\n") else []
    return [one for one in found if not number or one["id"] == number]


def trace_of(path: Path, request_id: str) -> list[dict[str, Any]]:
    """The objects of the trace of one request, as soon as they are in the file."""

    def number() -> int:
        return next((o["id"] for o in objects(path) if o.get("request_id") == request_id), 0)

    eventually(lambda: number() > 0, f"the trace of {request_id}")
    return objects(path, number())


def names(trace: list[dict[str, Any]]) -> list[str]:
    return [point["name"] for one in trace for point in one.get("timestamps", [])]


def test_settings_are_told_as_strings_and_a_list(client: triton.InferenceServerClient) -> None:
    for model in (None, "echo"):
        settings = client.get_trace_settings(model_name=model)
        assert settings.pop("trace_file").endswith("trace.json")
        assert settings == INITIAL


def test_extension_is_announced(client: triton.InferenceServerClient) -> None:
    extensions = client.get_server_metadata()["extensions"]
    assert extensions.index("statistics") < extensions.index("trace") < extensions.index("logging")


def test_model_follows_the_global_settings_where_it_has_none_of_its_own(
    client: triton.InferenceServerClient,
) -> None:
    mine = client.update_trace_settings("echo", {"trace_rate": "12", "log_frequency": "34"})
    assert (mine["trace_rate"], mine["log_frequency"], mine["trace_count"]) == ("12", "34", "-1")
    client.update_trace_settings(settings={"trace_rate": "56", "trace_level": ["OFF"]})
    mine = client.get_trace_settings("echo")
    assert (mine["trace_rate"], mine["trace_level"]) == ("12", ["OFF"])
    assert client.get_trace_settings("other")["trace_rate"] == "56"


def test_null_gives_a_setting_back(client: triton.InferenceServerClient) -> None:
    client.update_trace_settings("echo", {"trace_rate": "12", "log_frequency": "34"})
    client.update_trace_settings(settings={"trace_rate": "56", "trace_count": "78"})
    mine = client.update_trace_settings("echo", {"trace_rate": None})
    assert (mine["trace_rate"], mine["trace_count"], mine["log_frequency"]) == ("56", "78", "34")
    cleared = client.update_trace_settings(settings={"trace_rate": None, "trace_count": None})
    assert (cleared["trace_rate"], cleared["trace_count"]) == ("1", "-1")


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        (
            {"trace_file": "x"},
            501,
            "trace file location can not be updated through network protocol",
        ),
        ({"trace_rate": "often"}, 400, "Unable to parse 'trace_rate', got: often"),
        (
            {"trace_rate": "-1"},
            400,
            "Unable to parse 'trace_rate', value is out of range [ 0, 4294967295 ], got: -1",
        ),
        (
            {"trace_count": "-2"},
            400,
            "Unable to parse 'trace_count'. Expecting value >= -1, got: -2",
        ),
        (
            {"trace_level": ["OFF", "TENSORS"]},
            400,
            "Expect only one trace level 'OFF' is specified",
        ),
        (
            {"trace_level": ["LOUD"]},
            400,
            "Unable to parse 'trace_level', got: LOUD. Expecting OFF, TIMESTAMPS or TENSORS",
        ),
        (
            {"trace_level": "OFF"},
            400,
            "Unable to parse 'trace_level', got: 'OFF'. Expecting an array of strings",
        ),
        (
            {"trace_rate": "0"},
            400,
            "Attempting to set invalid trace setting :sample rate must be non-zero",
        ),
        (
            {"colour": "red"},
            400,
            "'colour' is not a trace setting that can be updated: "
            "trace_level, trace_rate, trace_count, log_frequency",
        ),
    ],
)
def test_wrong_change_is_refused_and_changes_nothing(
    server: Server, change: dict[str, Any], status: int, text: str
) -> None:
    before = server.get("/v2/trace/setting")
    answer = server.post("/v2/trace/setting", {"log_frequency": "7", **change})
    assert (answer[0], json.loads(answer[1])["error"]) == (status, text)
    assert server.get("/v2/trace/setting") == before


def test_settings_of_an_unknown_model_are_refused(client: triton.InferenceServerClient) -> None:
    with pytest.raises(InferenceServerException, match="Request for unknown model : nobody"):
        client.get_trace_settings("nobody")
    with pytest.raises(InferenceServerException, match="Request for unknown model : nobody"):
        client.update_trace_settings("nobody", {"trace_rate": "1"})


def test_file_tells_every_step_of_a_request(
    client: triton.InferenceServerClient, folder: Path
) -> None:
    infer(client, "echo", "steps")
    trace = trace_of(folder / "trace.json", "steps")
    number = trace[0]["id"]
    assert trace[0] == {
        "id": number,
        "model_name": "echo",
        "model_version": 1,
        "request_id": "steps",
    }
    assert names(trace) == STEPS
    moments = [point["ns"] for one in trace[1:] for point in one["timestamps"]]
    assert moments == sorted(moments)


def test_compute_times_are_those_of_the_batch(
    client: triton.InferenceServerClient, folder: Path
) -> None:
    infer(client, "slow", "computed")
    points = {
        point["name"]: point["ns"]
        for one in trace_of(folder / "trace.json", "computed")
        for point in one.get("timestamps", [])
    }
    assert 2.9e9 < points["COMPUTE_OUTPUT_START"] - points["COMPUTE_INPUT_END"] < 60e9


def test_level_tensors_adds_inputs_and_outputs(
    client: triton.InferenceServerClient, folder: Path
) -> None:
    client.update_trace_settings("echo", {"trace_level": ["TENSORS"]})
    infer(client, "echo", "tensors")
    trace = trace_of(folder / "trace.json", "tensors")
    data = {"data": "1.0,2.5,-3.0", "shape": "1,3", "dtype": "FP32"}
    assert trace[1:] == [
        {
            "id": trace[0]["id"],
            "activity": "TENSOR_QUEUE_INPUT",
            "tensor": {"name": "INPUT0", **data},
        },
        {
            "id": trace[0]["id"],
            "activity": "TENSOR_BACKEND_OUTPUT",
            "tensor": {"name": "OUTPUT0", **data},
        },
    ]


def test_refused_request_is_traced_to_its_answer(server: Server, folder: Path) -> None:
    status, _ = server.post("/v2/models/other/infer", {"id": "bad", "inputs": []})
    assert status == 400

    def ended() -> bool:
        mine = {one["id"] for one in objects(path) if one.get("model_name") == "other"}
        return any("HTTP_SEND_END" in names(objects(path, number)) for number in mine)

    path = folder / "trace.json"
    eventually(ended, "the trace of the refused request")


def test_count_ends_tracing_and_frequency_numbers_the_files(
    client: triton.InferenceServerClient, folder: Path
) -> None:
    client.update_trace_settings(
        "other", {"trace_count": "5", "trace_rate": "2", "log_frequency": "2"}
    )
    for number in range(14):
        infer(client, "other", f"counted {number}")
    assert client.get_trace_settings("other")["trace_count"] == "0"
    found: list[list[str]] = []

    def five() -> bool:
        found[:] = [
            [one["request_id"] for one in objects(path) if "request_id" in one]
            for path in sorted(folder.glob("trace.json.*"))
        ]
        return sum(map(len, found)) == 5

    eventually(five, "five traces")
    assert found == [
        ["counted 1", "counted 3"],
        ["counted 5", "counted 7"],
        ["counted 9"],
    ]


def test_client_that_hangs_up_leaves_a_trace(server: Server, folder: Path) -> None:
    inputs = [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [1]}]
    body = json.dumps({"id": "gone", "inputs": inputs}).encode()
    head = (
        f"POST /v2/models/slow/infer HTTP/1.1\r\nHost: [::1]\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.http_port)) as connection:
        connection.sendall(head.encode() + body)
    trace = trace_of(folder / "trace.json", "gone")
    assert "QUEUE_START" in names(trace)
    assert "HTTP_SEND_END" not in names(trace)


@pytest.mark.parametrize("verb", ["generate", "generate_stream"])
def test_generate_is_traced(server: Server, folder: Path, verb: str) -> None:
    status, _ = server.post(f"/v2/models/echo/{verb}", {"id": verb, "INPUT0": [1.0]})
    assert status == 200
    steps = names(trace_of(folder / "trace.json", verb))
    assert [step for step in STEPS if step in steps][:10] == STEPS[:10]


def test_metrics_count_traces(server: Server, client: triton.InferenceServerClient) -> None:
    infer(client, "echo")

    def written() -> bool:
        text = server.get("/metrics", port=server.metrics_port)[1].decode()
        line = next(one for one in text.splitlines() if one.startswith("modelyard_traces_written"))
        return float(line.split()[1]) > 0

    eventually(written, "a written trace to be counted")

"""gRPC's TraceSetting and LogSettings, and traces of gRPC requests."""

import json
import queue
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.utils import InferenceServerException

from support.server import Server, running, write_identity

STEPS = [
    "GRPC_WAITREAD_START",
    "GRPC_WAITREAD_END",
    "REQUEST_START",
    "QUEUE_START",
    "COMPUTE_START",
    "COMPUTE_INPUT_END",
    "COMPUTE_OUTPUT_START",
    "COMPUTE_END",
    "INFER_RESPONSE_COMPLETE",
    "REQUEST_END",
    "GRPC_SEND_START",
    "GRPC_SEND_END",
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("traces")


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Server]:
    write_identity(folder / "models", "echo")
    flags = ["level=TIMESTAMPS", "rate=1", f"triton,file={folder / 'trace.json'}"]
    with running(folder / "models", trace_config=flags) as one:
        yield one


@pytest.fixture
def client(server: Server) -> Iterator[triton.InferenceServerClient]:
    one = triton.InferenceServerClient(server.grpc)
    yield one
    none = dict.fromkeys(("trace_level", "trace_rate", "trace_count", "log_frequency"))
    one.update_trace_settings("echo", none)
    one.update_trace_settings(settings=none)
    one.update_log_settings({"log_info": True, "log_verbose_level": 0, "log_format": "default"})
    one.close()


def tensor() -> triton.InferInput:
    one = triton.InferInput("INPUT0", [1, 1], "FP32")
    one.set_data_from_numpy(np.array([[1]], np.float32))
    return one


def steps_of(folder: Path, request_id: str) -> list[str]:
    """The names of the points of one request, as soon as they are in the file."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        text = (folder / "trace.json").read_text() if (folder / "trace.json").exists() else ""
        found = json.loads(text) if text.endswith("]\n") else []
        for number in [one["id"] for one in found if one.get("request_id") == request_id]:
            points = [one["timestamps"] for one in found if one["id"] == number and len(one) == 2]
            return [point["name"] for several in points for point in several]
        time.sleep(0.01)
    raise AssertionError(f"no trace of {request_id} within 60 s")


def values(response: Any) -> dict[str, list[str]]:
    return {name: list(one.value) for name, one in response.settings.items()}


def test_trace_settings_are_tritons(client: triton.InferenceServerClient, folder: Path) -> None:
    for model in (None, "echo"):
        assert values(client.get_trace_settings(model)) == {
            "trace_level": ["TIMESTAMPS"],
            "trace_rate": ["1"],
            "trace_count": ["-1"],
            "log_frequency": ["0"],
            "trace_file": [str(folder / "trace.json")],
            "trace_mode": ["triton"],
        }


def test_model_level_update_and_clearing(client: triton.InferenceServerClient) -> None:
    changed = client.update_trace_settings("echo", {"trace_rate": "9", "trace_count": "3"})
    assert values(changed)["trace_rate"] == ["9"]
    client.update_trace_settings(settings={"trace_level": ["TENSORS", "TIMESTAMPS"]})
    mine = values(client.update_trace_settings("echo", {"trace_rate": None}))
    assert (mine["trace_rate"], mine["trace_count"]) == (["1"], ["3"])
    assert mine["trace_level"] == ["TIMESTAMPS", "TENSORS"]


@pytest.mark.parametrize(
    ("model", "change", "status", "text"),
    [
        (
            None,
            {"trace_file": "x"},
            "UNIMPLEMENTED",
            "trace file location can not be updated through network protocol",
        ),
        (
            None,
            {"trace_rate": ["1", "2"]},
            "INVALID_ARGUMENT",
            "expect only 1 value for 'trace_rate'",
        ),
        (
            None,
            {"trace_count": "x"},
            "INVALID_ARGUMENT",
            "Unable to parse 'trace_count', got: x",
        ),
        ("no", {"trace_rate": "1"}, "INVALID_ARGUMENT", "Request for unknown model : no"),
    ],
)
def test_wrong_trace_change_is_refused(
    client: triton.InferenceServerClient,
    model: str | None,
    change: dict[str, Any],
    status: str,
    text: str,
) -> None:
    with pytest.raises(InferenceServerException) as refused:
        client.update_trace_settings(model, change)
    assert (refused.value.status(), refused.value.message()) == (f"StatusCode.{status}", text)


def test_unary_request_is_traced_step_by_step(
    client: triton.InferenceServerClient, folder: Path
) -> None:
    client.infer("echo", [tensor()], request_id="unary")
    assert steps_of(folder, "unary") == STEPS


def test_second_request_of_the_same_form_is_traced_as_well(
    client: triton.InferenceServerClient, folder: Path
) -> None:
    for _ in range(3):
        client.infer("echo", [tensor()], request_id="again")
    client.infer("echo", [tensor()], request_id="again1")
    assert steps_of(folder, "again1") == STEPS


def test_request_of_a_stream_is_traced(client: triton.InferenceServerClient, folder: Path) -> None:
    answers: queue.SimpleQueue[Any] = queue.SimpleQueue()
    client.start_stream(lambda result, error: answers.put(error or result))
    client.async_stream_infer("echo", [tensor()], request_id="streamed")
    assert answers.get(timeout=60).get_response().id == "streamed"
    client.stop_stream()
    assert steps_of(folder, "streamed") == STEPS


def log_values(response: Any) -> dict[str, Any]:
    return {
        name: getattr(one, one.WhichOneof("parameter_choice"))
        for name, one in response.settings.items()
    }


def test_log_settings_are_read_and_changed(client: triton.InferenceServerClient) -> None:
    before = client.get_log_settings()
    assert log_values(before) == {
        "log_file": "",
        "log_info": True,
        "log_warning": True,
        "log_error": True,
        "log_verbose_level": 0,
        "log_format": "default",
    }
    assert before.settings["log_verbose_level"].WhichOneof("parameter_choice") == "uint32_param"
    change = {"log_info": False, "log_verbose_level": 1, "log_format": "ISO8601"}
    after = client.update_log_settings(change)
    assert log_values(after) == {**log_values(before), **change}


@pytest.mark.parametrize(
    ("change", "status", "text"),
    [
        (
            {"log_file": "x"},
            "UNIMPLEMENTED",
            "log file location can not be updated through network protocol",
        ),
        (
            {"log_format": "xml"},
            "INVALID_ARGUMENT",
            "invalid argument for log_format, got: xml; expecting default or ISO8601",
        ),
    ],
)
def test_wrong_log_change_is_refused(
    client: triton.InferenceServerClient, change: dict[str, Any], status: str, text: str
) -> None:
    with pytest.raises(InferenceServerException) as refused:
        client.update_log_settings(change)
    assert refused.value.status() == f"StatusCode.{status}"
    assert refused.value.message().startswith(text)


def test_debug_line_of_a_failed_request_names_its_id(
    server: Server, client: triton.InferenceServerClient
) -> None:
    client.update_log_settings({"log_verbose_level": 1})
    wrong = triton.InferInput("INPUT0", [1, 1], "INT8")
    wrong.set_data_from_numpy(np.array([[1]], np.int8))
    with pytest.raises(InferenceServerException, match="data-type is 'INT8'"):
        client.infer("echo", [wrong], request_id="told")
    (line,) = [line for line in server.log().splitlines() if "told" in line]
    assert "ModelInfer is answered with INVALID_ARGUMENT: [request id: told]" in line

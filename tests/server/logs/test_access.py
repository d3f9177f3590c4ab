"""The access log: one line per request, written beside the loop."""

import json
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import grpc
import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb
from tritonclient.utils import InferenceServerException

from control.authentication.forwarded import networks
from server.logs.access import MOST_WAITING, AccessLog, AccessLogEntry, line
from support.http import INFER, ask, infer_body
from support.server import Server, identity_config, running, write_identity

STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"


def entry(**changes: Any) -> AccessLogEntry:
    facts: dict[str, Any] = {
        "protocol": "http",
        "client": "127.0.0.1:1",
        "method": "POST",
        "path": "/v2",
        "status": 200,
        "began_ns": 1_000_000,
        "duration_us": 5,
    }
    return AccessLogEntry(**{**facts, **changes})


def test_a_line_is_one_json_object_with_the_wall_clocks_time() -> None:
    text = line(entry(id="a\nb"), 1_700_000_000_000_000_000)
    assert text.count("\n") == 1
    told = json.loads(text)
    assert told["time"] == "2023-11-14T22:13:20.001+00:00"
    assert told["id"] == "a\nb"
    assert "began_ns" not in told


def test_what_was_written_is_in_the_file_after_close(tmp_path: Path) -> None:
    log = AccessLog(str(tmp_path / "log"), 1.0)
    for _ in range(100):
        log.write(entry())
    log.close()
    assert len((tmp_path / "log").read_text().splitlines()) == 100


def test_a_share_of_nothing_tells_of_nothing(tmp_path: Path) -> None:
    log = AccessLog(str(tmp_path / "log"), 0.0)
    assert not any(log.chosen() for _ in range(1000))
    log.close()


def test_a_slow_disk_costs_lines_and_never_waits(tmp_path: Path) -> None:
    log = AccessLog(str(tmp_path / "log"), 1.0)
    log.close()  # nobody writes any more, as with a disk that hangs
    for _ in range(MOST_WAITING + 5):
        log.write(entry())
    assert len(log._waiting) == MOST_WAITING
    assert log._dropped == 5


def lines(server: Server, file: Path, count: int) -> list[dict[str, Any]]:
    server.wait_for(
        lambda: len(file.read_text().splitlines()) >= count, f"{count} lines of access log"
    )
    return [json.loads(text) for text in file.read_text().splitlines()]


def test_each_request_has_its_line(tmp_path: Path) -> None:
    write_identity(tmp_path / "models", "echo")
    file = tmp_path / "access.log"
    with running(
        tmp_path / "models",
        allow_grpc=False,
        wait=False,
        access_log=file,
        http_restricted_api="statistics:key=value",
    ) as server:
        server.wait_for(lambda: "READY" in server.log(), "the model")
        body = json.dumps({**json.loads(infer_body()), "id": "r-1"}).encode()
        answer = ask(server, "POST", INFER, body)
        ask(server, "POST", INFER, b"{")
        ask(server, "GET", "/v2/models/echo/versions/1/config")
        ask(server, "GET", "/v2/models/stats")
        infer, bad, config, stats = lines(server, file, 4)
    assert (infer["protocol"], infer["method"], infer["path"]) == ("http", "POST", INFER)
    assert (infer["id"], infer["model"], infer["version"]) == ("r-1", "echo", "1")
    assert (infer["status"], infer["bytes_in"]) == (200, len(body))
    assert infer["bytes_out"] == len(answer.body)
    assert infer["client"].startswith("127.0.0.1:")
    assert 0 <= infer["upload_us"] <= infer["duration_us"] < 60_000_000
    assert (bad["status"], bad["model"], bad["id"]) == (400, "echo", "")
    assert (config["method"], config["status"], config["version"]) == ("GET", 200, "1")
    assert config["bytes_out"] > 100
    assert stats["status"] == 403


STREAMED = (
    'parameters { key: "responses" value { string_value: "50" } }\n'
    "model_transaction_policy { decoupled: true }\n"
)
GENERATE, EVENTS = "/v2/models/echo/generate", "/v2/models/streamed/generate_stream"


@pytest.fixture(scope="module")
def slow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    """`echo` takes 3 s, `streamed` half of that for 50 responses; and the log of both."""
    folder = tmp_path_factory.mktemp("slow")
    write_identity(folder / "models", "echo", delay_ms=3000)
    text = identity_config("streamed", 30, STREAMED)
    write_identity(folder / "models", "streamed", config=text)
    with running(folder / "models", access_log=folder / "access.log") as server:
        yield server, folder / "access.log"


def statuses(server: Server, file: Path, path: str) -> list[object]:
    """Of the lines of this path, once there is one."""
    server.wait_for(lambda: path in file.read_text(), f"a line of {path}")
    told = [json.loads(text) for text in file.read_text().splitlines()]
    return [one["status"] for one in told if one["path"] == path]


@pytest.mark.parametrize(
    ("path", "body", "until"),
    [
        (INFER, infer_body(), b""),
        (GENERATE, b'{"INPUT0": [1, 2]}', b""),
        (EVENTS, b'{"INPUT0": [1, 2]}', b"data: "),
    ],
)
def test_a_client_that_goes_before_its_answers_end_is_told_as_499(
    slow: tuple[Server, Path], path: str, body: bytes, until: bytes
) -> None:
    server, file = slow
    with socket.create_connection(("127.0.0.1", server.http_port), 30) as gone:
        head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        gone.sendall(head.encode() + body)
        received = b""
        while until not in received:
            received += gone.recv(4096)
    assert statuses(server, file, path) == [499]


def test_a_grpc_stream_whose_client_goes_is_told_as_cancelled(slow: tuple[Server, Path]) -> None:
    server, file = slow
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2]}
    asked = pb.ModelInferRequest(
        model_name="streamed", inputs=[tensor], raw_input_contents=[bytes(8)]
    )
    with grpc.insecure_channel(server.grpc) as channel:
        call = channel.stream_stream(STREAM)(iter([asked.SerializeToString()]))
        next(call)
        call.cancel()
        assert statuses(server, file, STREAM) == ["CANCELLED"]


def test_a_log_that_cannot_be_opened_stops_the_start(tmp_path: Path) -> None:
    write_identity(tmp_path / "models", "echo")
    with running(tmp_path / "models", wait=False, access_log=tmp_path / "no" / "log") as server:
        assert server.wait_exit() == 1
        assert "the access log cannot be written to" in server.log()
        assert "name another file with --access-log" in server.log()


def test_each_call_has_its_line(tmp_path: Path) -> None:
    write_identity(tmp_path / "models", "echo")
    file = tmp_path / "access.log"
    asked = triton.InferInput("INPUT0", [1, 4], "FP32")
    asked.set_data_from_numpy(np.ones((1, 4), np.float32))
    with running(tmp_path / "models", allow_http=False, wait=False, access_log=file) as server:
        server.wait_for(lambda: "gRPC" in server.log(), "the banner")
        with triton.InferenceServerClient(server.grpc) as client:
            client.infer("echo", [asked], request_id="r-2")
            with pytest.raises(InferenceServerException):
                client.infer("nobody", [asked])
            client.get_model_config("echo")
        infer, refused, config = lines(server, file, 3)
    assert (infer["protocol"], infer["method"], infer["status"]) == ("grpc", "ModelInfer", "OK")
    assert (infer["id"], infer["model"], infer["version"]) == ("r-2", "echo", "1")
    assert infer["bytes_in"] > 16
    assert infer["bytes_out"] > 16
    assert infer["client"].startswith("127.0.0.1:")
    assert refused["status"] == "NOT_FOUND"
    assert (config["method"], config["status"]) == ("ModelConfig", "OK")
    assert config["bytes_out"] > 50


def test_before_a_trusted_proxy_the_client_is_whom_it_names(tmp_path: Path) -> None:
    write_identity(tmp_path / "models", "echo")
    file = tmp_path / "access.log"
    said = {"x_forwarded_for": "192.0.2.1, 203.0.113.5"}
    with running(tmp_path / "models", access_log=file, trusted_proxies="127.0.0.0/8") as server:
        ask(server, "POST", INFER, infer_body(), **said)
        ask(server, "GET", "/v2/models/echo", **said)
        with triton.InferenceServerClient(server.grpc) as client:
            client.get_model_config("echo", headers={"x-forwarded-for": "203.0.113.5"})
        wanted = (INFER, "/v2/models/echo", "/inference.GRPCInferenceService/ModelConfig")
        server.wait_for(lambda: all(f'"{path}"' in file.read_text() for path in wanted), "lines")
    told = [json.loads(text) for text in file.read_text().splitlines()]
    assert [one["client"] for one in told if one["path"] in wanted] == ["203.0.113.5"] * 3


def test_an_address_that_anybody_else_names_is_not_believed(tmp_path: Path) -> None:
    log = AccessLog(str(tmp_path / "log"), 0.0, networks(["10.0.0.0/8"]))
    forwarded = [(b"x-forwarded-for", b"203.0.113.5")]
    assert log.client("198.51.100.9:7", forwarded) == "198.51.100.9:7"
    assert log.client("10.0.0.1:7", forwarded) == "203.0.113.5"
    assert log.client("10.0.0.1:7", []) == "10.0.0.1:7"
    log.close()

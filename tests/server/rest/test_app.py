"""The REST listener of a real server, asked by tritonclient and by plain sockets."""

import json
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
import tritonclient.http as triton

from support.server import Server, identity_config, running, write_identity

LIMIT = 1 << 20


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "echo", 1, 2)
    write_identity(repository, "slow", 1, delay_ms=200)
    tight = identity_config("tight", 2000, "").replace(
        "dynamic_batching {}",
        "dynamic_batching { default_queue_policy { max_queue_size: 1 } }\n"
        "instance_group { count: 1 kind: KIND_CPU }",
    )
    write_identity(repository, "tight", 1, config=tight.replace("max_batch_size: 8", ONE_ROW))
    write_identity(repository, "broken", 1, config='name: "broken"\nmax_batch_size: -4\n')
    with running(repository, http_max_input_size=LIMIT, strict_readiness=False) as one:
        yield one


ONE_ROW = "max_batch_size: 1"


def body(**changes: Any) -> bytes:
    entry: dict[str, Any] = {"name": "INPUT0", "datatype": "FP32", "shape": [1, 2], "data": [1, 2]}
    entry.update(changes)
    return json.dumps({"inputs": [entry]}).encode()


def infer(server: Server, content: bytes, path: str = "/v2/models/echo/infer") -> tuple[int, str]:
    status, answer = server.call("POST", path, content)
    return status, json.loads(answer).get("error", "")


def still_serves(server: Server) -> bool:
    return infer(server, body()) == (200, "")


def connect(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.http_port), timeout=60)


def post(content: bytes, *headers: str, path: str = "/v2/models/echo/infer") -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + content


def read_responses(connection: socket.socket, count: int) -> list[tuple[int, Any]]:
    """(status, JSON) of `count` responses in the order they came."""
    stream = connection.makefile("rb")
    found = []
    for _ in range(count):
        status = int(stream.readline().split()[1])
        length = 0
        while (line := stream.readline().strip().lower()) != b"":
            if line.startswith(b"content-length:"):
                length = int(line.split(b":")[1])
        found.append((status, json.loads(stream.read(length)) if length else None))
    return found


def test_tritonclient_infers_with_binary_tensors_and_with_json(server: Server) -> None:
    client = triton.InferenceServerClient(server.http)
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    for binary in (True, False):
        asked = triton.InferInput("INPUT0", [2, 3], "FP32")
        asked.set_data_from_numpy(array, binary_data=binary)
        output = triton.InferRequestedOutput("OUTPUT0", binary_data=binary)
        result = client.infer("echo", [asked], outputs=[output], request_id="r1")
        np.testing.assert_array_equal(result.as_numpy("OUTPUT0"), array)
        assert result.get_response()["id"] == "r1"
        assert result.get_response()["model_version"] == "2"
    client.close()


def test_tritonclient_reads_health_metadata_config_statistics_and_index(server: Server) -> None:
    client = triton.InferenceServerClient(server.http)
    assert client.is_server_live()
    assert client.is_server_ready()
    assert client.is_model_ready("echo")
    assert client.is_model_ready("echo", "1")
    assert not client.is_model_ready("echo", "9")
    assert not client.is_model_ready("nobody")
    assert client.get_server_metadata()["name"] == "modelyard"
    metadata = client.get_model_metadata("echo")
    assert metadata["versions"] == ["1", "2"]
    assert metadata["inputs"] == [{"name": "INPUT0", "datatype": "FP32", "shape": [-1, -1]}]
    assert client.get_model_metadata("echo", "1")["versions"] == ["1"]
    assert client.get_model_config("echo")["max_batch_size"] == 8
    assert infer(server, body()) == (200, "")
    (stats,) = client.get_inference_statistics("echo", "2")["model_stats"]
    assert stats["inference_stats"]["success"]["count"] >= 1
    assert stats["execution_count"] >= 1
    rows = {(row["name"], row.get("version")): row for row in client.get_model_repository_index()}
    assert rows["echo", "2"]["state"] == "READY"
    client.close()


def test_a_model_that_failed_is_in_the_index_with_its_reason(server: Server) -> None:
    (row,) = [row for row in server.index() if row["name"] == "broken"]
    assert row["state"] == "UNAVAILABLE"
    assert "config.pbtxt:2:" in row["reason"]
    assert "-4" in row["reason"]


BATCH_NOTE = "NOTE: Setting a non-zero max_batch_size in the model config requires"
BAD_INPUT = [
    (body(name="X"), 400, "unexpected inference input 'X' for model 'echo'"),
    (body(datatype="INT8"), 400, "data-type is 'INT8', but model 'echo' expects 'FP32'"),
    (body(shape=[2]), 400, f"Expected [-1,-1], got [2]. {BATCH_NOTE}"),
    (body(shape=[9, 2], data=[0] * 18), 400, "inference request batch-size must be <= 8"),
    (body(shape=[1, 3]), 500, "shape does not match true shape"),
    (b'{"inputs":[]}', 400, "expected 1 inputs but got 0 inputs for model 'echo'"),
    (b'{"inputs":[', 400, "failed to parse the request JSON buffer"),
    (b"\xff\xfe", 400, "failed to parse the request JSON buffer"),
    (b"", 400, "failed to parse the request JSON buffer"),
    (b'{"inputs":' + b"[" * 2000 + b"]" * 2000 + b"}", 400, "maximum of 100 levels"),
    (b'{"inputs":' + b"[" * 200_000, 400, ""),
]


@pytest.mark.parametrize(("content", "status", "text"), BAD_INPUT)
def test_bad_input_gets_its_code_and_text_and_the_next_request_is_served(
    server: Server, content: bytes, status: int, text: str
) -> None:
    got, error = infer(server, content)
    assert got == status
    assert text in error
    assert still_serves(server)


HUGE = "9" * 5000
NO_VERSION = (
    "failed to get model version from specified version string '{}' "
    "(details: stol), version should be an integral value > 0"
)


@pytest.mark.parametrize(
    ("path", "status", "text"),
    [
        ("/v2/models/no/infer", 404, "Request for unknown model: 'no' is not found"),
        (
            "/v2/models/echo/versions/9/infer",
            404,
            "Request for unknown model: 'echo' version 9 is not found",
        ),
        ("/v2/models/echo/versions/x/infer", 400, NO_VERSION.format("x")),
        (f"/v2/models/echo/versions/{HUGE}/infer", 400, NO_VERSION.format("9" * 64 + "...")),
        ("/v2/models/a/b/infer", 404, "Not Found"),
        ("/v2/models/%2e%2e%2fetc/infer", 404, "Request for unknown model: '../etc' is not found"),
        ("/v3", 404, "Not Found"),
        ("/v2/health/live", 405, "Method Not Allowed"),
        ("/v2/repository/foo/index", 501, "'repository_name' specification is not supported"),
        (
            "/v2/repository/models/echo/load",
            503,
            "explicit model load / unload is not allowed if polling is enabled",
        ),
    ],
)
def test_wrong_paths_verbs_and_versions_are_refused(
    server: Server, path: str, status: int, text: str
) -> None:
    assert infer(server, body(), path) == (status, text)


@pytest.mark.parametrize("version", ["x", "0", "-1", "1.0", "9" * 19, HUGE])
@pytest.mark.parametrize("path", ["", "/ready", "/config", "/stats", "/generate"])
def test_a_version_that_is_no_number_is_refused_on_every_path(
    server: Server, path: str, version: str
) -> None:
    verb = "POST" if path == "/generate" else "GET"
    status, answer = server.call(verb, f"/v2/models/echo/versions/{version}{path}", b"{}")
    shown = version if version != HUGE else "9" * 64 + "..."
    assert (status, json.loads(answer)["error"]) == (400, NO_VERSION.format(shown))


def test_a_binary_header_length_is_checked(server: Server) -> None:
    for value, text in (
        ("abc", "Unable to parse Inference-Header-Content-Length, got: abc"),
        ("9999", "inference header size should be in range (0,"),
    ):
        content = body()
        with connect(server) as connection:
            connection.sendall(
                post(
                    content,
                    f"Content-Length: {len(content)}",
                    f"Inference-Header-Content-Length: {value}",
                )
            )
            ((status, answer),) = read_responses(connection, 1)
        assert status == 400
        assert text in answer["error"]


def test_a_body_over_the_limit_is_refused_by_size_and_the_connection_goes_on(
    server: Server,
) -> None:
    content = b" " * (100 << 20)
    with connect(server) as connection:
        connection.sendall(post(b"", "Content-Length: 2097152") + content[: 2 << 20])
        connection.sendall(post(body(), f"Content-Length: {len(body())}"))
        (refused, served) = read_responses(connection, 2)
    assert refused[0] == 400
    assert f"exceeds the maximum allowed value of {LIMIT} bytes" in refused[1]["error"]
    assert served[0] == 200
    with connect(server) as connection, pytest.raises(OSError):
        connection.sendall(post(content, f"Content-Length: {len(content)}"))
    assert still_serves(server)


def test_pipelined_requests_are_answered_in_order(server: Server) -> None:
    length = f"Content-Length: {len(body())}"
    first = post(body(), length, path="/v2/models/slow/infer")
    other = b"GET /v2/models/echo HTTP/1.1\r\nHost: localhost\r\n\r\n"
    last = post(body(), length)
    with connect(server) as connection:
        connection.sendall(first + other + last + last)
        answers = read_responses(connection, 4)
    assert [status for status, _ in answers] == [200] * 4
    assert [answer.get("model_name") for _, answer in answers] == ["slow", None, "echo", "echo"]


def test_chunked_and_announced_bodies_are_read(server: Server) -> None:
    content = body()
    chunked = b"%x\r\n%s\r\n%x\r\n%s\r\n0\r\n\r\n" % (
        10,
        content[:10],
        len(content) - 10,
        content[10:],
    )
    with connect(server) as connection:
        connection.sendall(post(chunked, "Transfer-Encoding: chunked"))
        ((status, _),) = read_responses(connection, 1)
        assert status == 200
        connection.sendall(post(b"", f"Content-Length: {len(content)}", "Expect: 100-continue"))
        assert connection.recv(25) == b"HTTP/1.1 100 Continue\r\n\r\n"
        connection.sendall(content)
        ((status, _),) = read_responses(connection, 1)
        assert status == 200


def test_a_request_byte_by_byte_is_a_request(server: Server) -> None:
    with connect(server) as connection:
        for byte in post(body(), f"Content-Length: {len(body())}"):
            connection.send(bytes([byte]))
        ((status, _),) = read_responses(connection, 1)
    assert status == 200


def test_connection_close_is_honoured(server: Server) -> None:
    with connect(server) as connection:
        connection.sendall(post(body(), f"Content-Length: {len(body())}", "Connection: close"))
        stream = connection.makefile("rb")
        assert b"connection: close" in stream.read().lower()


def test_a_client_that_hangs_up_leaves_nothing_waiting(server: Server) -> None:
    content = body()
    for sent in (20, None):
        with connect(server) as connection:
            message = post(content, f"Content-Length: {len(content)}", path=SLOW)
            connection.sendall(message[:sent])
    server.wait_for(lambda: pending(server, "slow") == 0, "the queue to be empty")
    assert still_serves(server)


SLOW = "/v2/models/slow/infer"


def pending(server: Server, model: str) -> float:
    text = server.get("/metrics", server.metrics_port)[1].decode()
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith("nv_inference_pending_request_count") and f'model="{model}"' in line
    )


def test_a_full_queue_answers_at_once(server: Server) -> None:
    with connect(server) as one, connect(server) as two, connect(server) as three:
        message = post(body(), f"Content-Length: {len(body())}", path="/v2/models/tight/infer")
        one.sendall(message)
        assert server.is_ready()  # a round trip through the loop: the first request runs now
        two.sendall(message)
        server.wait_for(lambda: pending(server, "tight") == 1, "the second request to wait")
        three.sendall(message)
        ((status, answer),) = read_responses(three, 1)
        assert (status, answer["error"]) == (
            503,
            "[request id: <id_unknown>] Exceeds maximum queue size",
        )
        assert read_responses(one, 1)[0][0] == 200
        assert read_responses(two, 1)[0][0] == 200


def test_the_index_lists_models_in_order(server: Server) -> None:
    names = [row["name"] for row in server.index()]
    assert names == sorted(names)


WHOLE_URL = "http://localhost:80/v2/models/echo/infer?a=b"


@pytest.mark.parametrize(
    "target", [WHOLE_URL, "/v2/models/echo/infer#part", "/v2/models/%65cho/infer"]
)
def test_a_target_may_be_a_whole_url(server: Server, target: str) -> None:
    with connect(server) as connection:
        connection.sendall(post(body(), f"Content-Length: {len(body())}", path=target))
        ((status, answer),) = read_responses(connection, 1)
    assert (status, answer["model_name"]) == (200, "echo")


def test_an_infer_path_with_escapes_is_refused_in_words(server: Server) -> None:
    status, answer = server.call("POST", "/v2/models/echo/%69nfer", body())
    assert status == 400
    assert "nothing but the model's name may have percent-escapes" in answer.decode()


@pytest.mark.parametrize("path", ["/v2/", "/v2/models/echo/", "/v2/models/echo/ready/"])
def test_a_path_with_a_slash_too_many_is_nobodys(server: Server, path: str) -> None:
    """A redirect would lead to whatever host the request names."""
    assert server.get(path) == (404, b'{"error":"Not Found"}')

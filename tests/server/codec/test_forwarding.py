"""Headers as parameters of the model, and the time a client says it will wait."""

import json
import queue
import socket
from collections.abc import Iterator

import numpy as np
import pytest
import tritonclient.grpc as grpc_triton
from tritonclient.utils import InferenceServerException

from server.codec.forwarding import HeaderForwarding
from server.errors import InvalidRequest
from server.rest.envelope import PLAIN_ENVELOPE, Envelope, read_envelope
from support.http import ask, infer_body
from support.server import Server, identity_config, running, write_identity

MODEL = """
import json
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        import numpy as np
        text = np.array([request.parameters().encode()], dtype=np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("SEEN", text)])
"""
CONFIG = """
name: "seen" backend: "python"
input { name: "INPUT0" data_type: TYPE_FP32 dims: [-1, -1] }
output { name: "SEEN" data_type: TYPE_STRING dims: 1 }
"""


def test_names_match_in_any_case_and_anywhere() -> None:
    forwarding = HeaderForwarding("my_header.*")
    headers = [("My_Header_1", "a"), ("X-my_header", "b"), ("other", "c")]
    assert forwarding.parameters(headers) == {"My_Header_1": "a", "X-my_header": "b"}


def test_case_matters_when_the_pattern_says_so() -> None:
    headers = [("MY_HEADER", "a"), ("my_header", "b")]
    assert HeaderForwarding("(?-i)MY_HEADER").parameters(headers) == {"MY_HEADER": "a"}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("Triton_x", "parameter keys starting with 'triton_' are reserved for Triton usage"),
        ("Priority", "the header 'Priority' cannot be forwarded as a parameter"),
        ("sequence_id", "the name is reserved"),
    ],
)
def test_reserved_names_are_refused_when_they_match(name: str, text: str) -> None:
    with pytest.raises(InvalidRequest, match=text):
        HeaderForwarding(".*").parameters([(name, "1")])
    assert HeaderForwarding("^x-").parameters([(name, "1")]) == {}


@pytest.mark.parametrize(
    ("headers", "envelope"),
    [
        ([(b"host", b"x"), (b"content-length", b"2")], PLAIN_ENVELOPE),
        ([(b"grpc-timeout", b"250m")], Envelope(timeout_ns=250_000_000)),
        ([(b"grpc-timeout", b"1H")], Envelope(timeout_ns=3_600_000_000_000)),
        ([(b"grpc-timeout", b"0n")], Envelope(timeout_ns=1)),
        ([(b"x-envoy-expected-rq-timeout-ms", b"1500")], Envelope(timeout_ns=1_500_000_000)),
        ([(b"x-envoy-expected-rq-timeout-ms", b"0")], PLAIN_ENVELOPE),
        (
            [(b"x-envoy-expected-rq-timeout-ms", b"9"), (b"grpc-timeout", b"8m")],
            Envelope(timeout_ns=8_000_000),
        ),
    ],
)
def test_headers_say_how_long_a_client_waits(
    headers: list[tuple[bytes, bytes]], envelope: Envelope
) -> None:
    assert read_envelope(headers) == envelope


@pytest.mark.parametrize("value", [b"", b"5", b"5x", b"123456789S", b"-1S", "٣S".encode()])
def test_a_timeout_of_another_form_is_refused(value: bytes) -> None:
    with pytest.raises(InvalidRequest, match="up to eight digits and a unit"):
        read_envelope([(b"grpc-timeout", value)])


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "seen", config=CONFIG)
    (repository / "seen/1/model.py").write_text(MODEL)
    write_identity(repository, "one", config=CONFIG.replace('"seen"', '"one"').replace(", -1", ""))
    (repository / "one/1/model.py").write_text(MODEL)
    tight = identity_config("tight", 2500, "instance_group { count: 1 kind: KIND_CPU }")
    write_identity(
        repository, "tight", config=tight.replace("max_batch_size: 8", "max_batch_size: 1")
    )
    pattern = "^(X-Fwd|priority)"
    with running(
        repository, http_header_forward_pattern=pattern, grpc_header_forward_pattern=pattern
    ) as one:
        yield one


def test_forwarded_headers_reach_the_model_and_win_over_the_body(server: Server) -> None:
    body = infer_body(**{"X-Fwd-A": "from the body", "kept": 1})
    answer = ask(
        server, "POST", "/v2/models/seen/infer", body, X_Fwd_A='a "quoted" \\ text', other="no"
    )
    (seen,) = answer.json["outputs"][0]["data"]
    assert json.loads(seen) == {"X-Fwd-A": 'a "quoted" \\ text', "kept": 1}


def test_a_reserved_header_is_refused_over_http(server: Server) -> None:
    answer = ask(server, "POST", "/v2/models/seen/infer", infer_body(), Priority="1")
    assert answer.status == 400
    assert "the header 'Priority' cannot be forwarded" in answer.error


@pytest.mark.parametrize(
    ("headers", "parameters"),
    [
        ({"x_envoy_expected_rq_timeout_ms": "50"}, {}),
        ({"grpc_timeout": "50m"}, {}),
        ({}, {"timeout": 50_000}),
    ],
)
def test_a_late_request_is_answered_with_request_timeout_expired(
    server: Server, headers: dict[str, str], parameters: dict[str, int]
) -> None:
    path = "/v2/models/tight/infer"
    body = infer_body()
    with socket.create_connection(("127.0.0.1", server.http_port)) as busy:
        busy.sendall(f"POST {path} HTTP/1.1\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
        answer = ask(server, "POST", path, infer_body(**parameters), **headers)
        assert (answer.status, answer.error) == (503, "Request timeout expired")
        assert busy.recv(100).startswith(b"HTTP/1.1 200")


def test_generate_forwards_headers_too(server: Server) -> None:
    answer = ask(server, "POST", "/v2/models/one/generate", b'{"INPUT0": 1}', X_Fwd_B="b")
    assert json.loads(answer.json["SEEN"]) == {"X-Fwd-B": "b"}


def test_metadata_is_forwarded_on_calls_and_streams(server: Server) -> None:
    metadata = {"x-fwd-c": "c", "other": "no"}
    asked = grpc_triton.InferInput("INPUT0", [1, 1], "FP32")
    asked.set_data_from_numpy(np.ones((1, 1), np.float32))
    seen: queue.Queue[grpc_triton.InferResult | None] = queue.Queue()
    with grpc_triton.InferenceServerClient(server.grpc) as client:
        result = client.infer("seen", [asked], headers=metadata)
        client.start_stream(lambda result, error: seen.put(result), headers=metadata)
        client.async_stream_infer("seen", [asked])
        streamed = seen.get(timeout=60)
        assert streamed is not None
        for one in (result, streamed):
            assert json.loads(one.as_numpy("SEEN")[0]) == {"x-fwd-c": "c"}
        with pytest.raises(InferenceServerException, match="the header 'priority' cannot be"):
            client.infer("seen", [asked], headers={"priority": "1"})

"""Generate: a flat object in, one out or a stream of events, in Triton's words."""

import http.client
import json
import socket
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format

from repository.config.tensors import Array
from repository.model import ModelConfig
from schedulers.request import InferResponse
from server.admit import bytes_array, read_terms
from server.codec.json_generate import decode, encode, shape_for
from server.errors import Internal, InvalidRequest, ServingError
from server.signature import Signature, compile_signature
from support.server import Server, running, write_identity

LLM = """
name: "llm" backend: "identity"
input { name: "PROMPT" data_type: TYPE_STRING dims: 1 }
input { name: "STREAM" data_type: TYPE_BOOL dims: 1 }
input { name: "TOKENS" data_type: TYPE_INT32 dims: -1 optional: true }
output { name: "TEXT" data_type: TYPE_STRING dims: 1 }
output { name: "FLAG" data_type: TYPE_BOOL dims: 1 }
output { name: "SEEN" data_type: TYPE_INT32 dims: -1 }
"""
STRICT = """
name: "strict" backend: "python" max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: [-1, 2] }
output { name: "Y" data_type: TYPE_FP32 dims: [-1, 2] }
"""
MODEL = """
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        x = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if x.min() < 0:
            error = pb_utils.TritonError("An Error Occurred", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse([], error)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", x)])
"""
FLOOD = 900
"""Responses of the model that makes more than anybody reads at once."""

MANY = """
name: "{0}" backend: "identity" model_transaction_policy {{ decoupled: true }}
input {{ name: "X" data_type: TYPE_FP32 dims: -1 }}
output {{ name: "Y" data_type: TYPE_FP32 dims: -1 }}
parameters {{ key: "responses" value {{ string_value: "{1}" }} }}
"""
SLOW = """
name: "slow" backend: "identity"
input { name: "X" data_type: TYPE_FP32 dims: 1 }
output { name: "Y" data_type: TYPE_FP32 dims: 1 }
parameters { key: "execute_delay_ms" value { string_value: "1500" } }
instance_group { count: 1 kind: KIND_CPU }
"""


def signature(text: str = LLM) -> Signature:
    return compile_signature(text_format.Parse(text, ModelConfig()), 1)


def ask(document: Any, model: Signature | None = None) -> Any:
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    return decode(body, model or signature(), 100)


def test_keys_that_name_inputs_become_tensors_and_the_rest_parameters() -> None:
    asked = ask({"PROMPT": "hé", "STREAM": [False], "TOKENS": [1, 2], "temperature": 0.5})
    assert asked.inputs["PROMPT"].tolist() == ["hé".encode()]
    assert asked.inputs["STREAM"].tolist() == [False]
    assert asked.inputs["TOKENS"].tolist() == [1, 2]
    assert asked.parameters == {"temperature": 0.5}
    assert (asked.id, asked.requested_outputs) == ("", ())


def test_members_of_parameters_count_as_if_they_stood_beside_it() -> None:
    nested = {"STREAM": True, "top_k": 3, "priority": 2, "sequence_id": "s"}
    asked = ask({"id": "r1", "PROMPT": "a", "parameters": nested})
    assert asked.inputs["STREAM"].tolist() == [True]
    terms = (("s", False, False), 2, 0, {"top_k": 3})
    assert (asked.id, read_terms(asked.parameters)) == ("r1", terms)


@pytest.mark.parametrize(
    ("dims", "max_batch", "count", "shape"),
    [
        ("-1", 0, 3, (3,)),
        ("-1", 0, 0, (0,)),
        ("1", 8, 3, (3, 1)),
        ("-1", 8, 3, (1, 3)),
        ("-1, 2", 8, 6, (1, 3, 2)),
        ("2, -1, 3", 0, 12, (2, 2, 3)),
        ("4", 0, 4, (4,)),
    ],
)
def test_elements_fill_fixed_dimensions_and_the_rest_goes_innermost(
    dims: str, max_batch: int, count: int, shape: tuple[int, ...]
) -> None:
    text = f'name: "m" max_batch_size: {max_batch} input {{ name: "X" data_type: TYPE_FP32 '
    model = signature(text + f"dims: [{dims}] }}")
    assert shape_for(model.inputs["X"], count) == shape


TEXT = "attempt to access JSON non-string as string"
BOOL = "attempt to access JSON non-boolean as boolean"
NO_SHAPE = "The schema can not convert input 'PROMPT' to tensor with proper shape"
REFUSALS: list[tuple[Any, type[ServingError], str]] = [
    ({}, InvalidRequest, "expected number of inputs between 2 and 3 but got 0"),
    ({"abc": 123}, InvalidRequest, "but got 0 inputs for model 'llm'"),
    ({"PROMPT": "a"}, InvalidRequest, "missing required input(s) ['STREAM']"),
    ({"PROMPT": 123, "STREAM": 1}, Internal, TEXT),
    ({"STREAM": 123, "PROMPT": True}, Internal, BOOL),
    ({"PROMPT": {"USER": "a"}, "STREAM": True}, Internal, TEXT),
    ({"PROMPT": [{"a": 1}], "STREAM": True}, Internal, TEXT),
    ({"PROMPT": None, "STREAM": True}, Internal, TEXT),
    ({"PROMPT": ["a", "b"], "STREAM": True}, InvalidRequest, NO_SHAPE),
    ({"PROMPT": [["a"]], "STREAM": True}, InvalidRequest, NO_SHAPE),
    ({"PROMPT": [], "STREAM": True}, InvalidRequest, NO_SHAPE),
    ({"PROMPT": "a", "PARAMS": {"a": 1}}, InvalidRequest, "parameter 'PARAMS' has invalid type"),
    ({"PROMPT": "a", "triton_x": 1}, InvalidRequest, "reserved for Triton usage"),
    ({"PROMPT": "a", "parameters": 1}, Internal, "Expected JSON object for keyword: 'parameters'"),
    (
        {"PROMPT": "a", "parameters": {"q": [1]}},
        InvalidRequest,
        "Converting keyword: 'parameters': parameter 'q' has invalid type",
    ),
    (
        b'{"PROMPT": "a", "STREAM": false, "STREAM": true, "PROMPT": "b"}',
        InvalidRequest,
        "input 'STREAM' already exists in request",
    ),
    (
        b'{"PROMPT": "a", "parameters": {"PROMPT": "b"}}',
        InvalidRequest,
        "input 'PROMPT' already exists in request",
    ),
    (b'{"q": 1, "q": 2}', InvalidRequest, "parameter 'q' already exists in request"),
    (b'{"id": "1", "id": "2"}', InvalidRequest, "key 'id' already exists in request"),
    ({"id": 3}, Internal, "Unable to parse 'id': attempt to access JSON non-string as string"),
    (b"[]", InvalidRequest, "failed to parse the request JSON buffer"),
    (b'{"PROMPT": "a', InvalidRequest, "failed to parse the request JSON buffer"),
    (b'{"PROMPT": "\\ud800"}', InvalidRequest, "failed to parse the request JSON buffer"),
    (b"", InvalidRequest, "failed to parse the request JSON buffer"),
    (b'{"a":' * 200 + b"1" + b"}" * 200, InvalidRequest, "maximum of 100 levels"),
]


@pytest.mark.parametrize(("document", "kind", "text"), REFUSALS)
def test_bad_requests_are_refused_in_tritons_words(
    document: Any, kind: type[ServingError], text: str
) -> None:
    with pytest.raises(kind) as refusal:
        ask(document)
    assert text in str(refusal.value)


def answer(**outputs: Array) -> Any:
    response = InferResponse("r", "m", 3, outputs, {"finish": "stop"})
    return json.loads(encode(response))


def test_single_elements_are_unwrapped_and_parameters_stand_beside_outputs() -> None:
    found = answer(
        TEXT=bytes_array(["ä".encode()], [1]),
        SCORES=np.array([[0.1, 2]], np.float32),
        ONE=np.array([[7]], np.int64),
        NONE=np.zeros((0,), np.int32),
        HALF=np.array([0.5], np.float16),
    )
    assert found == {
        "TEXT": "ä",
        "SCORES": [0.1, 2.0],
        "ONE": 7,
        "NONE": [],
        "HALF": 0.5,
        "finish": "stop",
        "id": "r",
        "model_name": "m",
        "model_version": "3",
    }


@pytest.mark.parametrize("count", [1, 2])
def test_nan_is_written_as_a_token(count: int) -> None:
    values = np.full(count, np.nan, np.float32)
    assert b"NaN" in encode(InferResponse("", "m", 1, {"Y": values}))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "llm", 1, 2, config=LLM + "version_policy { all {} }")
    write_identity(repository, "slow", config=SLOW)
    for name, count in (("none", 0), ("three", 3), ("flood", FLOOD)):
        write_identity(repository, name, config=MANY.format(name, count))
    folder = write_identity(repository, "strict", config=STRICT)
    (folder / "1" / "model.py").write_text(MODEL)
    with running(repository, http_max_input_size=1 << 16) as one:
        yield one


def post(server: Server, path: str, document: Any) -> tuple[int, str, bytes]:
    """Status, content type and body."""
    connection = http.client.HTTPConnection(server.http, timeout=60)
    body = document if isinstance(document, bytes) else json.dumps(document).encode()
    connection.request("POST", f"/v2/models/{path}", body)
    response = connection.getresponse()
    found = response.status, response.getheader("Content-Type", ""), response.read()
    connection.close()
    return found


SAY = {"PROMPT": "grüß dich", "STREAM": True}


def test_generate_answers_with_one_object(server: Server) -> None:
    status, kind, body = post(server, "llm/generate", {**SAY, "id": "7"})
    assert (status, kind) == (200, "application/json")
    assert json.loads(body) == {
        "TEXT": "grüß dich",
        "FLAG": True,
        "id": "7",
        "model_name": "llm",
        "model_version": "2",
    }


def test_generate_stream_answers_with_events(server: Server) -> None:
    status, kind, body = post(server, "llm/versions/1/generate_stream", SAY)
    assert (status, kind) == (200, "text/event-stream; charset=utf-8")
    assert body.startswith(b"data: {")
    assert body.endswith(b"}\n\n")
    assert json.loads(body[6:])["model_version"] == "1"


def test_a_stream_of_events_asks_proxies_not_to_collect_it(server: Server) -> None:
    connection = http.client.HTTPConnection(server.http, timeout=60)
    connection.request("POST", "/v2/models/llm/generate_stream", json.dumps(SAY))
    response = connection.getresponse()
    response.read()
    connection.close()
    assert response.getheader("X-Accel-Buffering") == "no"


@pytest.mark.parametrize("verb", ["generate", "generate_stream"])
@pytest.mark.parametrize(
    ("path", "document", "status", "text"),
    [
        ("nobody/", SAY, 404, "Request for unknown model: 'nobody' is not found"),
        ("llm/versions/9/", SAY, 404, "unknown model: 'llm' version 9 is not found"),
        ("llm/", {}, 400, "but got 0 inputs for model 'llm'"),
        ("llm/", {"PROMPT": 1}, 500, TEXT),
        ("llm/", b"{", 400, "failed to parse the request JSON buffer"),
        ("llm/", b" " * (1 << 17), 400, "larger than the maximum of 65536 bytes"),
    ],
)
def test_errors_before_inference_are_json_on_both_verbs(
    server: Server, verb: str, path: str, document: Any, status: int, text: str
) -> None:
    got, kind, body = post(server, path + verb, document)
    assert (got, kind) == (status, "application/json")
    assert text in json.loads(body)["error"]


def test_a_model_that_fails_sets_the_status_of_both_verbs(server: Server) -> None:
    status, kind, body = post(server, "strict/generate", {"X": [-1, 0]})
    assert (status, kind) == (400, "application/json")
    assert "An Error Occurred" in json.loads(body)["error"]
    status, kind, body = post(server, "strict/generate_stream", {"X": [-1, 0]})
    assert (status, kind) == (400, "text/event-stream; charset=utf-8")
    assert "An Error Occurred" in json.loads(body[6:])["error"]


def test_a_batch_of_one_is_made_where_the_model_batches(server: Server) -> None:
    status, _, body = post(server, "strict/generate", {"X": [1, 2, 3, 4]})
    assert status == 200
    assert json.loads(body)["Y"] == [1, 2, 3, 4]


def test_only_post_is_taken(server: Server) -> None:
    assert server.get("/v2/models/llm/generate")[0] == 405


def events(body: bytes) -> list[Any]:
    """The data of each event."""
    parts = body.split(b"\n\n")
    assert parts.pop() == b""
    assert all(part.startswith(b"data: ") for part in parts)
    return [json.loads(part[6:]) for part in parts]


def test_each_response_of_a_decoupled_model_is_an_event(server: Server) -> None:
    status, _, body = post(server, "three/generate_stream", {"X": [1.5, 2]})
    assert status == 200
    assert [event["Y"] for event in events(body)] == [[1.5, 2]] * 3


def test_no_response_at_all_is_an_empty_stream(server: Server) -> None:
    status, kind, body = post(server, "none/generate_stream", {"X": 1})
    assert (status, kind, body) == (200, "text/event-stream; charset=utf-8", b"")


@pytest.mark.parametrize("model", ["none", "three"])
def test_generate_takes_models_with_exactly_one_response(server: Server, model: str) -> None:
    status, kind, body = post(server, f"{model}/generate", {"X": 1})
    assert (status, kind) == (400, "application/json")
    assert json.loads(body)["error"] == (
        "generate expects model to produce exactly 1 response, use generate stream for model "
        "that generates various number of responses"
    )


def made(server: Server) -> int:
    """Responses 'flood' has made so far, of one request."""
    (stats,) = json.loads(server.get("/v2/models/flood/stats")[1])["model_stats"]
    return len(stats["response_stats"])


def test_a_client_that_does_not_read_stops_the_model_and_loses_nothing(server: Server) -> None:
    body = json.dumps({"X": [0.5] * 12_000}).encode()  # 48 kB an event, 43 MB the stream
    head = (
        "POST /v2/models/flood/generate_stream HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n"
    )
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as client:
        client.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        seen = [-1, -2]

        def is_still() -> bool:
            seen.append(made(server))
            return len(set(seen[-10:])) == 1 and seen[-1] > 0

        server.wait_for(is_still, "the model to wait for its reader")
        assert seen[-1] < FLOOD / 2
        assert post(server, "llm/generate", SAY)[0] == 200
        received = b"".join(iter(lambda: client.recv(1 << 16), b""))
    assert made(server) == FLOOD
    assert received.count(b"data: {") == FLOOD


def pending(server: Server) -> float:
    text = server.get("/metrics", server.metrics_port)[1].decode()
    name = 'nv_inference_pending_request_count{model="slow",version="1"}'
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


def canceled(server: Server, model: str) -> float:
    text = server.get("/metrics", server.metrics_port)[1].decode()
    return sum(
        float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("nv_inference_request_failure")
        and f'model="{model}"' in line
        and "CANCELED" in line
    )


@pytest.mark.parametrize("verb", ["generate", "generate_stream"])
def test_a_client_that_hangs_up_leaves_nothing_waiting(server: Server, verb: str) -> None:
    before = canceled(server, "slow")
    body = b'{"X": 1}'
    head = f"POST /v2/models/slow/{verb} HTTP/1.1\r\nHost: [::1]\r\n"
    head += f"Content-Length: {len(body)}\r\n\r\n"
    clients = [socket.create_connection(("127.0.0.1", server.http_port)) for _ in range(3)]
    for client in clients:
        client.sendall(head.encode() + body)
    server.wait_for(lambda: pending(server) == 2, "one running and two waiting")
    for client in clients:
        client.close()
    server.wait_for(lambda: pending(server) == 0, "an empty queue")
    server.wait_for(lambda: canceled(server, "slow") >= before + 2, "two cancelled requests")
    assert post(server, "slow/generate", {"X": 2.5})[0] == 200


def test_a_client_that_hangs_up_in_the_middle_of_a_stream_stops_the_model(server: Server) -> None:
    before = canceled(server, "flood")
    body = json.dumps({"X": [0.5] * 12_000}).encode()
    head = "POST /v2/models/flood/generate_stream HTTP/1.1\r\nHost: localhost\r\n"
    with socket.create_connection(("127.0.0.1", server.http_port), timeout=60) as client:
        client.sendall(head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body)
        assert client.recv(15) == b"HTTP/1.1 200 OK"
    server.wait_for(lambda: canceled(server, "flood") == before + 1, "the end of the request")

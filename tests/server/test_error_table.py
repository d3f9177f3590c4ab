"""Triton's error table: each case over REST and gRPC, with the code and text clients match on."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import pytest
from tritonclient.grpc import service_pb2 as pb

from support.error_table import HTTP, Ask, Tensor, rest, rpc
from support.server import Server, running, write_identity

PLAIN = """
name: "plain" backend: "identity"
input { name: "INPUT0" data_type: TYPE_INT32 dims: 2 }
input { name: "INPUT1" data_type: TYPE_INT32 dims: 2 }
input { name: "INPUT2" data_type: TYPE_STRING dims: 2 }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 2 }
"""
SPARE = """
name: "spare" backend: "identity" max_batch_size: 8
input { name: "INPUT0" data_type: TYPE_INT32 dims: 16 }
input { name: "INPUT1" data_type: TYPE_INT32 dims: 16 optional: true }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 16 }
"""
TIGHT = """
name: "tight" backend: "identity" max_batch_size: 1
input { name: "INPUT0" data_type: TYPE_INT32 dims: 2 }
output { name: "OUTPUT0" data_type: TYPE_INT32 dims: 2 }
dynamic_batching { default_queue_policy { max_queue_size: 2 allow_timeout_override: true } }
parameters { key: "execute_delay_ms" value { string_value: "1500" } }
instance_group { count: 1 kind: KIND_CPU }
"""
NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be "
    "prepended to each input shape. If you want to specify the full shape including the batch dim "
    "in your input dims config, try setting max_batch_size to zero. See the model configuration "
    "docs for more info on max_batch_size."
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "plain", config=PLAIN)
    write_identity(repository, "spare", config=SPARE)
    write_identity(repository, "tight", config=TIGHT)
    torn = repository / "torn" / "1"
    torn.mkdir(parents=True)
    (torn / "model.onnx").write_bytes(b"not a model")
    with running(repository, strict_readiness=False) as one:
        yield one


A, B = Tensor("INPUT0", (2,)), Tensor("INPUT1", (2,))
C = Tensor("INPUT2", (2,), "BYTES", b"\1\0\0\0a\2\0\0\0bc")
ROW = Tensor("INPUT0", (1, 16))


class Row(NamedTuple):
    """A line of the table; `text` is the whole text, or what it begins with if `more`."""

    ask: Ask
    code: str
    text: str
    more: bool = False


NO_ID = "[request id: <id_unknown>] "
BAD = "INVALID_ARGUMENT"
UNKNOWN = "Request for unknown model: "
TABLE = {
    "unknown model": Row(Ask("x"), "NOT_FOUND", f"{UNKNOWN}'x' is not found"),
    "unknown version": Row(
        Ask("plain", version="9"), "NOT_FOUND", f"{UNKNOWN}'plain' version 9 is not found"
    ),
    "known, nothing loaded": Row(
        Ask("torn"), "NOT_FOUND", f"{UNKNOWN}'torn' has no available versions", more=True
    ),
    "named version not ready": Row(
        Ask("torn", version="1"),
        "UNAVAILABLE",
        f"{UNKNOWN}'torn' version 1 is not at ready state",
        more=True,
    ),
    "missing inputs": Row(
        Ask("plain", (A,)),
        BAD,
        f"{NO_ID}expected 3 inputs but got 1 inputs for model 'plain'. Got input(s) ['INPUT0'], "
        "but missing required input(s) ['INPUT1','INPUT2']. Please provide all required input(s).",
    ),
    "missing inputs beside optional ones": Row(
        Ask("spare", (Tensor("INPUT1", (1, 16)),), id="7"),
        BAD,
        "[request id: 7] expected number of inputs between 1 and 2 but got 1 inputs for model "
        "'spare'. Got input(s) ['INPUT1'], but missing required input(s) ['INPUT0']. Please "
        "provide all required input(s).",
    ),
    "unknown input": Row(
        Ask("plain", (A, B, C, Tensor("X", (1,)))),
        BAD,
        f"{NO_ID}unexpected inference input 'X' for model 'plain'",
    ),
    "unknown output": Row(
        Ask("plain", (A, B, C), ("X",)),
        BAD,
        f"{NO_ID}unexpected inference output 'X' for model 'plain'",
    ),
    "duplicate input": Row(
        Ask("plain", (A, A)), BAD, f"{NO_ID}input 'INPUT0' already exists in request"
    ),
    "duplicate output": Row(
        Ask("plain", (A, B, C), ("OUTPUT0", "OUTPUT0")),
        BAD,
        f"{NO_ID}output 'OUTPUT0' already exists in request",
    ),
    "data type": Row(
        Ask("plain", (Tensor("INPUT0", (2,), "FP32"),)),
        BAD,
        f"{NO_ID}inference input 'INPUT0' data-type is 'FP32', but model 'plain' expects 'INT32'",
    ),
    "shape of a model that batches": Row(
        Ask("spare", (Tensor("INPUT0", (1, 15)),)),
        BAD,
        f"{NO_ID}unexpected shape for input 'INPUT0' for model 'spare'. Expected [-1,16], got "
        f"[1,15]. {NOTE}",
    ),
    "shape of a model that does not": Row(
        Ask("plain", (Tensor("INPUT0", (3,)),)),
        BAD,
        f"{NO_ID}unexpected shape for input 'INPUT0' for model 'plain'. Expected [2], got [3]. ",
    ),
    "batch mismatch": Row(
        Ask("spare", (ROW, Tensor("INPUT1", (2, 16)))),
        BAD,
        f"{NO_ID}input 'INPUT1' batch size does not match other inputs for 'spare'",
    ),
    "batch too large": Row(
        Ask("spare", (Tensor("INPUT0", (9, 16)),)),
        BAD,
        f"{NO_ID}inference request batch-size must be <= 8 for 'spare'",
    ),
    "byte size": Row(
        Ask("spare", (Tensor("INPUT0", (1, 16), octets=bytes(60)),)),
        BAD,
        f"{NO_ID}input byte size mismatch for input 'INPUT0' for model 'spare'. "
        "Expected 64, got 60",
    ),
    "too few strings": Row(
        Ask("plain", (A, B, Tensor("INPUT2", (2,), "BYTES", b"\1\0\0\0a"))),
        BAD,
        f"{NO_ID}expected 2 string elements for inference input 'INPUT2' for model 'plain', got 1",
    ),
    "too many strings": Row(
        Ask("plain", (A, B, Tensor("INPUT2", (2,), "BYTES", bytes(12)))),
        BAD,
        f"{NO_ID}unexpected number of string elements 3 for inference input 'INPUT2' for model "
        "'plain', expecting 2",
    ),
    "a torn string length": Row(
        Ask("plain", (A, B, Tensor("INPUT2", (2,), "BYTES", bytes(6)))),
        BAD,
        f"{NO_ID}incomplete string length indicator for inference input 'INPUT2' for model 'plain'",
        more=True,
    ),
}


@pytest.mark.parametrize("row", TABLE.values(), ids=TABLE)
@pytest.mark.parametrize("wire", ["rest", "grpc"])
def test_a_case_of_the_table_has_its_code_and_text(server: Server, wire: str, row: Row) -> None:
    code: str | int
    if wire == "rest":
        code, text = row.ask.over_rest(server)
        assert code == HTTP[row.code]
    else:
        code, text = row.ask.over_grpc(server)
        assert code == row.code
    assert (text[: len(row.text)] if row.more else text) == row.text


@pytest.mark.parametrize("wire", ["rest", "grpc"])
def test_what_the_table_is_asked_with_is_right_but_for_the_fault(server: Server, wire: str) -> None:
    for ask in (Ask("plain", (A, B, C), ("OUTPUT0",)), Ask("spare", (ROW,))):
        answer = ask.over_rest(server) if wire == "rest" else ask.over_grpc(server)
        assert answer in ((200, ""), ("OK", ""))


REST_ONLY = [
    (b"{", 400, "failed to parse the request JSON buffer: "),
    (b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[-1]}]}', 500, "Unable to parse "
     "'shape': attempt to access JSON non-unsigned-integer as unsigned-integer"),
    (b'{"inputs":[{"name":1}]}', 500, "Unable to parse 'name': attempt to access JSON non-string"
     " as string"),
    (b'{"inputs":1}', 500, "Unable to parse 'inputs': attempt to access JSON non-array as array"),
    (b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[2],"data":[1,2,3]}]}', 500,
     "Unable to parse 'data': Shape does not match true shape of 'data' field"),
    (b'{"inputs":[{"name":"INPUT0","datatype":"INT32","shape":[2],"data":[1]}]}', 500,
     "Failed to parse 'data' field: shape does not match true shape"),
    (b'{"inputs":[],"parameters":{"triton_x":1}}', 400, "parameter keys starting with 'triton_' "
     "are reserved for Triton usage and should not be specified."),
    (b'{"inputs":[],"parameters":{"priority":"a"}}', 500, "Unable to parse 'priority': attempt to "
     "access JSON non-unsigned-integer as unsigned-integer"),
    (b'{"inputs":[],"parameters":{"timeout":1.5}}', 500, "Unable to parse 'timeout': attempt to "
     "access JSON non-signed-integer as signed-integer"),
    (b'{"inputs":[],"parameters":{"p":{}}}', 400, "parameter 'p' has invalid type. It should be "
     "either 'int', 'bool', or 'string'."),
    (b'{"inputs":[],"parameters":{"p":' + b"9" * 30 + b',"q":NaN}}', 400,
     "parameter 'p' does not fit 64 bits"),
    (b'{"inputs":[],"id":"\\ud800"}', 400, "failed to parse the request JSON buffer: "),
]  # fmt: skip


@pytest.mark.parametrize(("body", "status", "text"), REST_ONLY)
def test_json_that_says_nothing_sensible_is_refused(
    server: Server, body: bytes, status: int, text: str
) -> None:
    got, error = rest(server, "/v2/models/plain/infer", body)
    assert (got, error[: len(text)]) == (status, text)


@pytest.mark.parametrize(
    ("version", "shown"), [("a", "a"), ("9" * 19, "9" * 19), ("9" * 5000, "9" * 64 + "...")]
)
def test_a_version_that_is_no_number_is_refused(server: Server, version: str, shown: str) -> None:
    text = (
        f"failed to get model version from specified version string '{shown}' (details: stol), "
        "version should be an integral value > 0"
    )
    assert Ask("plain", version=version).over_grpc(server) == (BAD, text)
    assert Ask("plain", version=version).over_rest(server) == (400, text)


def test_a_reserved_parameter_is_refused_over_grpc(server: Server) -> None:
    code, text = Ask("plain", (A, B, C), parameters={"triton_x": 1}).over_grpc(server)
    assert code == BAD
    assert text.startswith("parameter keys starting with 'triton_' are reserved for Triton usage.")


@pytest.mark.parametrize(
    ("name", "version", "text"),
    [
        ("x", "", "requested model 'x' is not available"),
        ("plain", "9", "requested model version is not available for model 'plain'"),
    ],
)
def test_statistics_of_what_is_not_there(
    server: Server, name: str, version: str, text: str
) -> None:
    path = f"/v2/models/{name}" + (f"/versions/{version}" if version else "") + "/stats"
    status, body = server.get(path)
    assert (status, json.loads(body)["error"]) == (400, text)
    message = pb.ModelStatisticsRequest(name=name, version=version)
    assert rpc(server, "ModelStatistics", message) == (BAD, text)


@pytest.mark.parametrize("verb", ["Load", "Unload"])
def test_loading_by_request_needs_the_explicit_mode(server: Server, verb: str) -> None:
    text = "explicit model load / unload is not allowed if polling is enabled"
    assert rest(server, f"/v2/repository/models/plain/{verb.lower()}", b"") == (503, text)
    message = getattr(pb, f"RepositoryModel{verb}Request")(model_name="plain")
    assert rpc(server, f"RepositoryModel{verb}", message) == ("UNAVAILABLE", text)


@pytest.mark.parametrize("verb", ["index", "models/plain/load", "models/plain/unload"])
def test_a_named_repository_is_not_taken(server: Server, verb: str) -> None:
    text = "'repository_name' specification is not supported"
    assert rest(server, f"/v2/repository/other/{verb}", b"") == (501, text)


def test_readiness_of_an_unknown_model_is_no_error_over_grpc(server: Server) -> None:
    assert rpc(server, "ModelReady", pb.ModelReadyRequest(name="x")) == ("OK", "")
    assert server.get("/v2/models/x/ready")[0] == 400


TIGHT_ROW = Tensor("INPUT0", (1, 2))


@contextmanager
def busy(server: Server, waiting: int) -> Iterator[None]:
    """One request of 'tight' runs, and so many wait."""
    ask = Ask("tight", (TIGHT_ROW,))

    def until_taken() -> None:
        for _ in range(100):  # all may come at once, before the first one runs: one too many
            if ask.over_rest(server)[0] != 503:
                return

    clients = [threading.Thread(target=until_taken) for _ in range(waiting + 1)]
    for client in clients:
        client.start()
    try:
        server.wait_for(lambda: pending(server) == waiting, f"{waiting} requests to wait")
        yield
    finally:
        for client in clients:
            client.join()


def pending(server: Server) -> float:
    text = server.get("/metrics", server.metrics_port)[1].decode()
    name = 'nv_inference_pending_request_count{model="tight",version="1"}'
    return next(float(line.split()[-1]) for line in text.splitlines() if line.startswith(name))


@pytest.mark.parametrize("wire", ["rest", "grpc"])
def test_a_full_queue_says_so_with_the_id(server: Server, wire: str) -> None:
    ask = Ask("tight", (TIGHT_ROW,), id="q")
    text = "[request id: q] Exceeds maximum queue size"
    with busy(server, waiting=2):
        answer = ask.over_rest(server) if wire == "rest" else ask.over_grpc(server)
    assert answer in ((503, text), ("UNAVAILABLE", text))


@pytest.mark.parametrize("wire", ["rest", "grpc"])
def test_a_request_that_waited_too_long_says_so_without_an_id(server: Server, wire: str) -> None:
    ask = Ask("tight", (TIGHT_ROW,), id="late", parameters={"timeout": 1000})
    with busy(server, waiting=1):
        answer = ask.over_rest(server) if wire == "rest" else ask.over_grpc(server)
    assert answer in ((503, "Request timeout expired"), ("UNAVAILABLE", "Request timeout expired"))

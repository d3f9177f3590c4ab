"""One request exactly as it goes over the wire, and the check that its answer is right.

Bodies are written here byte by byte, because a load generator repeats them; answers are read with
the stock client, so that a peer is held to what real clients would see.
"""

import struct
from contextlib import closing
from http.client import HTTPConnection
from typing import NamedTuple

import grpc
import numpy as np
import orjson
from numpy.typing import NDArray
from tritonclient.grpc import InferResult, service_pb2
from tritonclient.http import InferenceServerClient

GRPC_PATH = "/inference.GRPCInferenceService/ModelInfer"
TIMEOUT_S = 30.0


class WrongAnswer(Exception):
    """A peer answered with an error, or with other numbers than it should have."""


class Problem(NamedTuple):
    """What is asked: one FP32 input with its batch dimension, and the output that is right."""

    model: str
    input_name: str
    input: NDArray[np.float32]
    output_name: str
    output: NDArray[np.float32]


class Shot(NamedTuple):
    """A problem on one wire. `body` is what is posted to `path`, `headers` are `name: value`."""

    problem: Problem
    wire: str
    path: str
    headers: tuple[str, ...]
    body: bytes


def json_shot(problem: Problem) -> Shot:
    """REST, tensors as JSON numbers."""
    tensor = {**_tensor_head(problem), "data": problem.input.ravel()}
    body = orjson.dumps({"inputs": [tensor]}, option=orjson.OPT_SERIALIZE_NUMPY)
    headers = ("content-type: application/json",)
    return Shot(problem, "REST JSON", _rest_path(problem), headers, body)


def binary_shot(problem: Problem) -> Shot:
    """REST, tensors as bytes behind a JSON head, both ways."""
    data = problem.input.tobytes()
    tensor = {**_tensor_head(problem), "parameters": {"binary_data_size": len(data)}}
    head = orjson.dumps({"inputs": [tensor], "parameters": {"binary_data_output": True}})
    headers = (
        "content-type: application/octet-stream",
        f"inference-header-content-length: {len(head)}",
    )
    return Shot(problem, "REST binary", _rest_path(problem), headers, head + data)


def grpc_shot(problem: Problem) -> Shot:
    """gRPC, raw contents: the message behind its five-byte frame."""
    request = service_pb2.ModelInferRequest(
        model_name=problem.model, raw_input_contents=[problem.input.tobytes()]
    )
    request.inputs.add(name=problem.input_name, datatype="FP32", shape=problem.input.shape)
    message = request.SerializeToString()
    frame = struct.pack(">BI", 0, len(message))
    headers = ("content-type: application/grpc", "te: trailers")
    return Shot(problem, "gRPC", GRPC_PATH, headers, frame + message)


def answer_size(shot: Shot, address: str) -> int:
    """Send a shot once; return its answer's bytes on the wire. Raises `WrongAnswer`."""
    try:
        answer, size = (_ask_grpc if shot.wire == "gRPC" else _ask_rest)(shot, address)
    except (OSError, grpc.RpcError) as error:
        raise WrongAnswer(f"{_who(shot, address)}: {error}") from error
    if answer is None:
        raise WrongAnswer(f"{_who(shot, address)}: no output '{shot.problem.output_name}'")
    if not np.allclose(answer, shot.problem.output, rtol=1e-3, atol=1e-4):
        raise WrongAnswer(f"{_who(shot, address)}: other numbers than asked for")
    return size


def _ask_rest(shot: Shot, address: str) -> tuple[NDArray[np.float32] | None, int]:
    host, _, port = address.partition(":")
    with closing(HTTPConnection(host, int(port), timeout=TIMEOUT_S)) as connection:
        headers = dict(header.split(": ", 1) for header in shot.headers)
        connection.request("POST", shot.path, shot.body, headers)
        response = connection.getresponse()
        body = response.read()
    if response.status != 200:
        raise WrongAnswer(f"{_who(shot, address)}: status {response.status}: {body[:500]!r}")
    head_size = response.getheader("inference-header-content-length")
    parse = InferenceServerClient.parse_response_body
    result = parse(body, header_length=int(head_size) if head_size else None)
    return result.as_numpy(shot.problem.output_name), len(body)


def _ask_grpc(shot: Shot, address: str) -> tuple[NDArray[np.float32] | None, int]:
    unbounded = (("grpc.max_receive_message_length", -1),)
    with grpc.insecure_channel(address, unbounded) as channel:
        call = channel.unary_unary(shot.path, bytes, bytes)
        reply = call(shot.body[5:], timeout=TIMEOUT_S)
    result = InferResult(service_pb2.ModelInferResponse.FromString(reply))
    return result.as_numpy(shot.problem.output_name), len(reply) + 5


def _tensor_head(problem: Problem) -> dict[str, object]:
    return {"name": problem.input_name, "shape": problem.input.shape, "datatype": "FP32"}


def _rest_path(problem: Problem) -> str:
    return f"/v2/models/{problem.model}/infer"


def _who(shot: Shot, address: str) -> str:
    return f"{shot.problem.model} over {shot.wire} at {address}"

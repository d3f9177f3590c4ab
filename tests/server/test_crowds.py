"""Crowds on the listeners: a thousand connections at once, slow writers, readers who do not read.

What is REST's alone is in rest/test_operation.py.
"""

import json
import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import numpy as np
import pytest
import tritonclient.grpc as triton
from tritonclient.grpc import service_pb2 as pb

from server.grpc.stream import IN_FLIGHT_BYTES
from server.http2.stream import STREAM_WINDOW
from server.http2.wire import frames
from support.http2 import Raw, ask, data, message, to
from support.server import Server, identity_config, running, write_identity
from support.usage import metric, resident_bytes, threads

CROWD = 1000
SLOW_READERS = 200
MB = 1 << 20
PASSING_THREADS = 20
"""Those that look at the folders come and go."""
PENDING = "nv_inference_pending_request_count"
SUCCESS = "nv_inference_request_success"
NUMBERS = 10_000
INFER = "/inference.GRPCInferenceService/ModelInfer"
STREAM = "/inference.GRPCInferenceService/ModelStreamInfer"
PIECE_BYTES = 100_000
ENDLESS = (
    'parameters { key: "responses" value { string_value: "1000000" } }\n'
    "model_transaction_policy { decoupled: true }\n"
)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "echo")
    write_identity(repository, "slow", delay_ms=20)
    write_identity(repository, "endless", config=identity_config("endless", extra=ENDLESS))
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    with running(repository) as one:
        yield one
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture
def lines(server: Server) -> Iterator[ExitStack]:
    """Closes the connections that are put into it; nothing of theirs is left in the server."""
    with ExitStack() as stack:
        yield stack
    server.wait_for(lambda: metric(server, PENDING) == 0, "an empty queue")
    still_serves(server)
    assert "Traceback" not in server.log()


def request(model: str, count: int = 4) -> bytes:
    """A message with `count` floats, as it travels."""
    tensor = {"name": "INPUT0", "datatype": "FP32", "shape": [1, count]}
    whole = pb.ModelInferRequest(
        model_name=model, inputs=[tensor], raw_input_contents=[bytes(4 * count)]
    )
    return message(whole.SerializeToString())


def still_serves(server: Server) -> None:
    asked = triton.InferInput("INPUT0", [1, 4], "FP32")
    asked.set_data_from_numpy(np.ones((1, 4), np.float32))
    with triton.InferenceServerClient(server.grpc) as client:
        answer = client.infer("echo", [asked], client_timeout=60)
    assert answer.as_numpy("OUTPUT0").tolist() == [[1.0] * 4]


@pytest.mark.parametrize("method", [INFER, STREAM])
def test_a_thousand_grpc_clients_at_once_may_write_slowly_and_are_served(
    server: Server, lines: ExitStack, method: str
) -> None:
    still_serves(server)
    before = threads(server)
    crowd = [lines.enter_context(Raw(server.grpc_port)) for _ in range(CROWD)]
    body = request("slow")
    for line in crowd:
        line.send(ask(1, to(method)), data(1, body[:20], flags=0))
    still_serves(server)
    assert threads(server) <= before + PASSING_THREADS
    for line in crowd:
        line.send(data(1, body[20:]))
    assert {line.status(1) for line in crowd} == {0}


def test_a_thousand_open_streams_hold_no_thread(server: Server, lines: ExitStack) -> None:
    still_serves(server)
    before = threads(server)
    crowd = [lines.enter_context(Raw(server.grpc_port)) for _ in range(CROWD)]
    for line in crowd:
        line.send(ask(1, to(STREAM)), data(1, request("echo"), flags=0))
    for line in crowd:
        assert line.next(frames.DATA, 1)
    assert threads(server) <= before + PASSING_THREADS
    for line in crowd:
        line.send(data(1, b""))
    assert {line.status(1) for line in crowd} == {0}


def endless_over_grpc(server: Server, lines: ExitStack) -> None:
    line = lines.enter_context(Raw(server.grpc_port))
    line.send(ask(1, to(STREAM)), data(1, request("endless", NUMBERS), flags=0))


def endless_over_http(server: Server, lines: ExitStack) -> None:
    line = lines.enter_context(socket.create_connection(("127.0.0.1", server.http_port)))
    body = json.dumps({"INPUT0": [1.5] * NUMBERS}).encode()
    head = f"POST /v2/models/endless/generate_stream HTTP/1.1\r\nContent-Length: {len(body)}"
    line.sendall(f"{head}\r\nHost: localhost\r\n\r\n".encode() + body)


@pytest.mark.parametrize("begin", [endless_over_grpc, endless_over_http])
def test_answers_without_end_wait_for_readers_who_do_not_read(
    server: Server, lines: ExitStack, begin: Callable[[Server, ExitStack], None]
) -> None:
    still_serves(server)
    threads_before, before = threads(server), resident_bytes(server)
    for _ in range(SLOW_READERS):
        begin(server, lines)
    server.wait_for(lambda: metric(server, PENDING) > SLOW_READERS // 2, "those who read nothing")
    still_serves(server)
    assert threads(server) <= threads_before + PASSING_THREADS
    assert resident_bytes(server) - before < 64 * MB


def test_a_stream_that_is_not_read_holds_bounded_memory(server: Server, lines: ExitStack) -> None:
    before = resident_bytes(server)
    line = lines.enter_context(Raw(server.grpc_port))
    line.send(ask(1, to(STREAM)))
    sent = pour(line, request("echo", MB // 4), most=200 * MB)
    assert IN_FLIGHT_BYTES < sent < 2 * IN_FLIGHT_BYTES
    assert resident_bytes(server) - before < 4 * IN_FLIGHT_BYTES


def pour(line: Raw, body: bytes, most: int) -> int:
    """Send messages until the server takes no more, or `most` bytes are sent; how many were."""
    sent = 0
    while sent < most:
        place = sent % len(body)
        piece = body[place : place + PIECE_BYTES]
        while sent + len(piece) > STREAM_WINDOW + line.granted[1]:
            if not grants_more(line):
                return sent
        line.send(data(1, piece, flags=0))
        sent += len(piece)
    return sent


def grants_more(line: Raw) -> bool:
    """Whether the window opens within some turns of the server's loop."""
    before = line.granted[1]
    for _ in range(50):
        line.ping()
        if line.granted[1] > before:
            return True
    return False


def test_readers_who_do_not_read_hold_no_thread_and_bounded_memory(
    server: Server, lines: ExitStack
) -> None:
    """Each is sent two answers of 1 MB, and reads none of them."""
    still_serves(server)
    threads_before, before = threads(server), resident_bytes(server)
    done = metric(server, SUCCESS) + 2 * SLOW_READERS
    body = 2 * request("echo", MB // 4)
    for _ in range(SLOW_READERS):
        line = lines.enter_context(Raw(server.grpc_port))
        line.send(ask(1, to(STREAM)))
        assert pour(line, body, len(body)) == len(body)
    server.wait_for(lambda: metric(server, SUCCESS) == done, "the answers")
    assert threads(server) <= threads_before + PASSING_THREADS
    assert resident_bytes(server) - before < SLOW_READERS * len(body) * 2.5 + 64 * MB

"""REST bodies that do not come whole, and answers that are not read, share the server's buffers."""

import json
import socket
import time
import zlib
from collections.abc import Iterator
from http.client import HTTPConnection

import pytest

from support.server import Server, running, write_identity

MIB = 2**20
INFER = b"POST /v2/models/m/infer HTTP/1.1\r\nHost: 127.0.0.1\r\n"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "m")
    with running(repository, allow_grpc=False, buffer_limit=64 * MIB) as one:
        yield one


def connected(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.http_port), timeout=60)


def begun(server: Server, size: int) -> socket.socket:
    """A connection that has sent the head of a body so long, and a little of it."""
    client = connected(server)
    client.sendall(INFER + b"Content-Length: %d\r\n\r\n{" % size)
    return client


def test_a_body_counts_from_its_content_length_on(server: Server) -> None:
    with begun(server, 28 * MIB), connected(server) as other:
        wait_for_held(server)
        other.sendall(INFER + b"Content-Length: %d\r\n\r\n{" % (28 * MIB))
        answer = other.recv(4096)
        assert answer.startswith(b"HTTP/1.1 503 ")
        assert b"--buffer-limit" in answer
        assert other.recv(1) == b""
        assert small_answer(server) == 200
    wait_until_fits(server, 28 * MIB)


def test_arrays_count_as_they_are_and_not_as_they_were_written(server: Server) -> None:
    count = 12 * MIB
    head = b'{"inputs":[{"name":"INPUT0","datatype":"FP32","shape":[1,%d],"data":[' % count
    body = head + b"0," * (count - 1) + b"0]}]}"
    status, answer = server.call("POST", "/v2/models/m/infer", body)
    assert (status, b"--buffer-limit" in answer) == (503, True), answer[:200]
    wait_until_fits(server, 28 * MIB)


def test_chunks_count_as_they_come(server: Server) -> None:
    with connected(server) as client:
        client.sendall(INFER + b"Transfer-Encoding: chunked\r\n\r\n")
        answer = b""
        try:
            for _ in range(40):
                client.sendall(b"100000\r\n" + b" " * MIB + b"\r\n")
        except ConnectionError:
            pass
        else:
            answer = client.recv(4096)
        assert not answer or answer.startswith(b"HTTP/1.1 503 ")
    wait_until_fits(server, 28 * MIB)


def test_answers_nobody_reads_are_dropped_when_they_do_not_fit(server: Server) -> None:
    clients = [connected(server) for _ in range(3)]
    for client in clients:
        body, length = tensor(18 * MIB)
        head = b"Inference-Header-Content-Length: %d\r\nContent-Length: %d\r\n\r\n"
        try:
            client.sendall(INFER + head % (length, len(body)) + body)
        except ConnectionError:
            continue
    lengths = [taken(client) for client in clients]
    assert max(lengths) > 18 * MIB
    assert min(lengths) < 18 * MIB
    wait_until_fits(server, 28 * MIB)


def test_a_compressed_body_counts_as_it_is_inflated(server: Server) -> None:
    client = HTTPConnection(server.http, timeout=60)
    packed = zlib.compress(b"[" + b" " * 50 * MIB + b"]")
    client.request("POST", "/v2/models/m/infer", packed, {"Content-Encoding": "deflate"})
    response = client.getresponse()
    assert (response.status, b"--buffer-limit" in response.read()) == (503, True)
    client.close()
    wait_until_fits(server, 28 * MIB)


def tensor(size: int) -> tuple[bytes, int]:
    """A binary infer body of `size` bytes of data, and the length of its JSON."""
    described = {"binary_data_size": size}
    shape = [1, size // 4]
    one = {"name": "INPUT0", "datatype": "FP32", "shape": shape, "parameters": described}
    head = json.dumps({"inputs": [one], "parameters": {"binary_data_output": True}}).encode()
    return head + bytes(size), len(head)


def taken(client: socket.socket) -> int:
    """Bytes that come until the answer ends or stops to come."""
    size = 0
    client.settimeout(3)
    try:
        while data := client.recv(MIB):
            size += len(data)
    except OSError:
        pass
    client.close()
    return size


def small_answer(server: Server) -> int:
    body = {"inputs": [{"name": "INPUT0", "datatype": "FP32", "shape": [1, 1], "data": [1]}]}
    return server.post("/v2/models/m/infer", body)[0]


def wait_for_held(server: Server) -> None:
    """Until the first connection's body is counted: what comes after it, is."""
    assert small_answer(server) == 200


def wait_until_fits(server: Server, size: int) -> None:
    """All is given back: a body that needs nearly all of it is waited for again."""
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        with begun(server, size) as client:
            client.settimeout(0.5)
            try:
                client.recv(1)
            except TimeoutError:
                return
            except ConnectionError:
                pass
    raise AssertionError("the buffers stay full")

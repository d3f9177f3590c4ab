"""One HTTP connection's limits: heads, chunks, patience, pipelines."""

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import BinaryIO

import pytest

from server.http1.connection import SLOWEST_BYTES_PER_S, ConnectionProbe, same_wait
from support.http import INFER, ask, infer_body
from support.server import Server, running, write_identity

STALL_S = 0.6
PATIENCE_S = 30.0
HEAD_BYTES = 8192


def look(message: object = None, received: int = 0, unsent: int = 0) -> ConnectionProbe:
    return ConnectionProbe(0.0, message, received, unsent)


def test_a_client_is_waited_for_while_it_sends_too_little() -> None:
    enough = int(SLOWEST_BYTES_PER_S * 60)
    first, other = ["first"], ["other"]
    assert same_wait(look(first), look(first), 60)
    assert same_wait(look(first, 10), look(first, 10 + enough - 1), 60)
    assert not same_wait(look(first, 10), look(first, 10 + enough), 60)
    assert not same_wait(look(first), look(other), 60)
    assert not same_wait(look(), look(), 60)


def test_a_client_is_waited_for_while_it_takes_nothing() -> None:
    assert same_wait(look(unsent=100), look(unsent=100), 60)
    assert same_wait(look(unsent=100), look(unsent=150), 60)
    assert same_wait(look(unsent=10**6), look(unsent=10**6 - 60_000), 60)
    assert not same_wait(look(unsent=10**6), look(unsent=10**6 - 62_000), 60)
    assert not same_wait(look(unsent=100), look(unsent=99)._replace(writing=True), 60)
    assert not same_wait(look(), look(unsent=100), 60)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "echo")
    write_identity(repository, "slow", delay_ms=300)
    with running(
        repository,
        allow_grpc=False,
        http_max_header_size=HEAD_BYTES,
        http_max_chunk_count=100,
    ) as one:
        yield one


@pytest.fixture(scope="module")
def hasty(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server that waits for nobody for long."""
    repository = tmp_path_factory.mktemp("models")
    write_identity(repository, "echo")
    write_identity(repository, "slow", delay_ms=2 * int(STALL_S * 1000))
    stall = {"http_keep_alive_secs": STALL_S, "http_stall_secs": STALL_S}
    with running(repository, allow_grpc=False, **stall) as one:
        yield one


def connected_to(server: Server) -> socket.socket:
    return socket.create_connection(("127.0.0.1", server.http_port), timeout=60)


@pytest.fixture
def line(server: Server) -> Iterator[socket.socket]:
    with connected_to(server) as one:
        yield one


def ended_after(line: socket.socket, began: float) -> float:
    """Seconds from `began` until the server closes the connection, which answers nothing."""
    with contextlib.suppress(ConnectionResetError):
        assert line.recv(1000) == b""
    return time.monotonic() - began


def answer(line: socket.socket) -> tuple[int, bytes]:
    """Status and body of an answer after which the server closes."""
    text = b""
    while part := line.recv(65536):
        text += part
    head, _, body = text.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def post(content: bytes, *lines: str, path: str = INFER) -> bytes:
    head = "\r\n".join([f"POST {path} HTTP/1.1", "Host: localhost", *lines])
    return f"{head}\r\nContent-Length: {len(content)}\r\n\r\n".encode() + content


def test_a_connection_that_says_nothing_is_closed(hasty: Server) -> None:
    began = time.monotonic()
    with connected_to(hasty) as line:
        assert STALL_S * 0.9 < ended_after(line, began) < PATIENCE_S


def test_an_idle_connection_is_closed_after_keep_alive(hasty: Server) -> None:
    with connected_to(hasty) as line:
        began = time.monotonic()
        line.sendall(post(infer_body()))
        assert line.recv(65536).startswith(b"HTTP/1.1 200")
        assert STALL_S * 0.9 < ended_after(line, began) < PATIENCE_S


def test_a_request_longer_than_keep_alive_is_answered(hasty: Server) -> None:
    for _ in range(3):
        assert ask(hasty, "POST", "/v2/models/slow/infer", infer_body()).status == 200


def dripped(line: socket.socket, text: bytes) -> float:
    """Send a byte now and then until the server closes; seconds until then."""
    line.settimeout(0.05)
    began = time.monotonic()
    for position in range(len(text)):
        try:
            line.sendall(text[position : position + 1])
            if line.recv(1000) == b"":
                break
        except TimeoutError:
            continue
        except ConnectionError:
            break
    return time.monotonic() - began


@pytest.mark.parametrize("path", [INFER, "/v2/repository/index"])
def test_a_body_that_drips_is_cut_off(hasty: Server, path: str) -> None:
    body = post(infer_body(1000), path=path)
    head, _, rest = body.partition(b"\r\n\r\n")
    with connected_to(hasty) as line:
        line.sendall(head + b"\r\n\r\n")
        assert dripped(line, rest) < PATIENCE_S


def test_a_head_that_drips_is_cut_off(hasty: Server) -> None:
    with connected_to(hasty) as line:
        assert dripped(line, post(b"", "X-Long: " + "x" * 1000)) < PATIENCE_S


def test_a_slow_body_that_keeps_coming_is_waited_for(hasty: Server) -> None:
    assert any(answered_slowly(hasty) for _ in range(5))  # unless the machine itself pauses


def answered_slowly(server: Server) -> bool:
    """Whether a body is answered that takes twice as long as a client may send nothing."""
    body = infer_body(5000)
    head = post(body).removesuffix(body)
    with connected_to(server) as line, contextlib.suppress(ConnectionError):
        line.sendall(head)
        for position in range(0, len(body), len(body) // 12):
            time.sleep(0.1)  # the client's own pace is what is tested
            line.sendall(body[position : position + len(body) // 12])
        return line.recv(65536).startswith(b"HTTP/1.1 200")
    return False


@pytest.mark.parametrize("lines", [(), ("Connection: close",)], ids=["kept", "closed"])
def test_a_client_that_reads_nothing_is_cut_off(hasty: Server, lines: tuple[str, ...]) -> None:
    body = infer_body(3_000_000)  # more than the kernel buffers, and long in the making
    request = post(body, *lines)
    with socket.socket() as line:
        line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        line.connect(("127.0.0.1", hasty.http_port))
        line.settimeout(60)
        line.sendall(request)
        hasty.wait_for(lambda: not connected(hasty, line), "the connection to be cut", 60)
    assert ask(hasty, "POST", INFER, infer_body()).status == 200


def connected(server: Server, line: socket.socket) -> bool:
    """Whether the server's end of the connection is open."""
    here, there = f":{server.http_port:04X}", f":{line.getsockname()[1]:04X}"
    rows = [row.split() for row in Path("/proc/net/tcp").read_text().splitlines()[1:]]
    return any(row[1].endswith(here) and row[2].endswith(there) and row[3] == "01" for row in rows)


def test_a_head_over_the_limit_is_refused(server: Server, line: socket.socket) -> None:
    line.sendall(b"POST / HTTP/1.1\r\n")
    assert server.is_ready()  # by now it has read that: the first read is not counted
    sent, piece = 0, b"X-More: " + b"x" * 90 + b"\r\n"
    while sent <= HEAD_BYTES:  # no byte more: what the server does not read resets the line
        line.sendall(piece)
        sent += len(piece)
    status, body = answer(line)
    assert status == 431
    assert json.loads(body)["error"] == f"The head of a request may have {HEAD_BYTES} bytes."


@pytest.mark.parametrize("path", [INFER, "/v2/repository/index"])
def test_chunks_are_counted(line: socket.socket, path: str) -> None:
    line.sendall(
        post(b"", "Transfer-Encoding: chunked", path=path).replace(b"Content-Length: 0\r\n", b"")
    )
    line.sendall(b"1\r\n{\r\n" * 101)
    status, body = answer(line)
    assert status == 400
    assert json.loads(body)["error"] == (
        "The request body has more than 100 chunks. Send larger chunks, or use "
        "--http-max-chunk-count to increase the limit."
    )


def test_the_chunk_that_ends_a_body_is_none_of_it(line: socket.socket) -> None:
    """A body of exactly as many chunks as are allowed, then another request on the connection."""
    body = infer_body(100)
    cut = [body[:-99], *(body[index : index + 1] for index in range(len(body) - 99, len(body)))]
    chunks = b"".join(b"%x\r\n%s\r\n" % (len(part), part) for part in cut) + b"0\r\n\r\n"
    chunked = post(b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b"")
    assert len(cut) == 100
    line.sendall(chunked + chunks + post(body, "Connection: close"))
    text = b""
    while part := line.recv(65536):
        text += part
    assert text.count(b"HTTP/1.1 200 OK") == 2


def test_a_chunked_body_within_the_limit_is_taken(line: socket.socket) -> None:
    body = infer_body(1000)
    line.sendall(post(b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b""))
    for position in range(0, len(body), 500):
        part = body[position : position + 500]
        line.sendall(b"%x\r\n%s\r\n" % (len(part), part))
    line.sendall(b"0\r\n\r\n")
    assert line.recv(100).startswith(b"HTTP/1.1 200")


@pytest.mark.parametrize("flood", [b"X-More: " + b"x" * 1000 + b"\r\n", b"1;e=" + b"x" * 30_000])
def test_trailers_and_extensions_are_bounded(line: socket.socket, flood: bytes) -> None:
    line.sendall(post(b"", "Transfer-Encoding: chunked").replace(b"Content-Length: 0\r\n", b""))
    line.sendall(b"2\r\n{}\r\n")
    if flood.startswith(b"X"):
        line.sendall(b"0\r\n")
    with pytest.raises(ConnectionError):
        send_until_refused(line, flood if flood.startswith(b"X") else flood[4:])


def send_until_refused(line: socket.socket, text: bytes) -> None:
    for _ in range(100_000):
        line.sendall(text)


def test_what_is_not_http_is_refused(line: socket.socket) -> None:
    line.sendall(b"nonsense\r\n\r\n")
    status, body = answer(line)
    assert (status, json.loads(body)["error"]) == (400, "Invalid HTTP request received.")


@pytest.mark.parametrize("path", ["/v2/models/slow/infer", "/v2/models/slow/generate"])
def test_a_request_before_one_that_is_no_http_is_answered(
    server: Server, line: socket.socket, path: str
) -> None:
    body = infer_body() if path.endswith("infer") else b'{"INPUT0":[1.0,2.0,3.0,4.0]}'
    head = f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
    line.sendall(head.encode() + body + b"this is no HTTP\r\n\r\n")
    answer = b""
    while piece := line.recv(65536):
        answer += piece
    assert answer.startswith(b"HTTP/1.1 200 ")
    assert answer.count(b"HTTP/1.1") == 1
    assert "Traceback" not in server.log()


def test_a_client_that_leaves_before_its_pipelined_answers_leaves_no_traceback(
    server: Server, line: socket.socket
) -> None:
    for _ in range(20):
        with socket.create_connection(line.getpeername()) as one:
            one.sendall(b"GET /v2/models/slow/stats HTTP/1.1\r\nHost: localhost\r\n\r\n" * 3)
    assert ask(server, "POST", INFER, infer_body()).status == 200
    assert "Traceback" not in server.log()


def test_many_pipelined_requests_are_answered_in_order(line: socket.socket) -> None:
    bad = post(b"[]")
    line.sendall(post(infer_body(), path="/v2/models/slow/infer") + bad * 2000 + post(infer_body()))
    stream = line.makefile("rb")
    statuses = [read_status(stream) for _ in range(2002)]
    assert statuses == [200, *[400] * 2000, 200]


def read_status(stream: BinaryIO) -> int:
    status = int(stream.readline().split()[1])
    length = 0
    while (text := stream.readline().strip().lower()) != b"":
        if text.startswith(b"content-length:"):
            length = int(text.split(b":")[1])
    stream.read(length)
    return status


def test_an_upgrade_is_answered_as_plain_http(line: socket.socket) -> None:
    line.sendall(b"GET /v2/health/live HTTP/1.1\r\nConnection: Upgrade\r\nUpgrade: h2c\r\n\r\n")
    status, _ = answer(line)
    assert status == 200


def test_an_upgrade_with_a_body_is_refused_with_its_reason(line: socket.socket) -> None:
    line.sendall(post(infer_body(), "Connection: Upgrade", "Upgrade: h2c"))
    status, body = answer(line)
    assert status == 400
    assert "does not upgrade connections" in json.loads(body)["error"]


def test_what_is_not_http_after_an_answer_is_refused(line: socket.socket) -> None:
    line.sendall(post(infer_body()))
    stream = line.makefile("rb")
    assert read_status(stream) == 200
    line.sendall(b"nonsense\r\n\r\n")
    assert read_status(stream) == 400

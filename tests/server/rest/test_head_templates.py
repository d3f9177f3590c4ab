"""Heads of infer requests that come again, which no parser reads then."""

import json
import re
import socket
from collections.abc import Iterator

import pytest

from server.rest.head_templates import MAX_HEAD_BYTES, MAX_TEMPLATES, HeadTemplates
from support.http import INFER, infer_body
from support.server import Server, running, write_identity

PATH = re.compile(rb"/v2/models/([^/?]+)(?:/versions/([0-9]+))?/infer")
BODY = b'{"inputs":[]}'


def head_of(*lines: bytes, size: int = len(BODY), path: bytes = b"/v2/models/m/infer") -> bytes:
    every = (b"POST %b HTTP/1.1" % path, b"Host: a", b"Content-Length: %d" % size, *lines)
    return b"".join(line + b"\r\n" for line in every) + b"\r\n"


def learned(templates: HeadTemplates, head: bytes, body: bytes = BODY, times: int = 2) -> None:
    fields = [line.split(b": ", 1) for line in head.split(b"\r\n")[1:] if line]
    headers = [(name.lower(), value) for name, value in fields]
    path = PATH.match(head.split(b" ")[1])
    assert path is not None
    for _ in range(times):
        templates.learn(head + body, path, headers, len(body))


def test_a_head_is_known_from_its_second_time_on() -> None:
    templates, head = HeadTemplates(), head_of(b"grpc-timeout: 5S", path=b"/v2/models/a%20b/infer")
    learned(templates, head, times=1)
    assert templates.find(head + BODY) is None
    learned(templates, head, times=1)
    found = templates.find(head + b"x" * len(BODY))
    assert found is not None
    assert (found.model, found.host, found.bytes) == (("a b", ""), b"a", len(head))
    assert found.envelope.timeout_ns == 5_000_000_000


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(head_of() + BODY[:-1], id="a body that has not come whole"),
        pytest.param((head_of() + BODY) * 2, id="two requests in one read"),
        pytest.param(head_of()[:-1], id="a head that has not come whole"),
        pytest.param(head_of(b"a: b") + BODY, id="another head"),
        pytest.param(b"", id="nothing"),
        pytest.param(b"\r\n" + head_of() + BODY, id="an empty line in front"),
    ],
)
def test_what_is_not_one_whole_request_with_that_head_is_parsed(data: bytes) -> None:
    templates = HeadTemplates()
    learned(templates, head_of())
    assert templates.find(head_of() + BODY) is not None
    assert templates.find(data) is None


@pytest.mark.parametrize(
    "line",
    [
        b"Transfer-Encoding: chunked",
        b"Expect: 100-continue",
        b"Upgrade: h2c",
        b"Host: b",
        b"Content-Length: 1",
        b"grpc-timeout: soon",
        b"x: " + b"y" * MAX_HEAD_BYTES,
    ],
)
def test_heads_that_change_what_follows_are_never_known(line: bytes) -> None:
    templates = HeadTemplates()
    learned(templates, head_of(line), times=3)
    assert templates.find(head_of(line) + BODY) is None


def test_a_head_whose_lines_end_otherwise_is_never_known() -> None:
    templates, head = HeadTemplates(), head_of().replace(b"Host: a\r\n", b"Host: a\n")
    fields = [(b"host", b"a"), (b"content-length", b"%d" % len(BODY))]
    path = PATH.match(b"/v2/models/m/infer")
    assert path is not None
    for _ in range(3):
        templates.learn(head + BODY, path, fields, len(BODY))
    assert templates.find(head + BODY) is None


def test_no_more_than_so_many_are_kept() -> None:
    templates = HeadTemplates()
    heads = [head_of(b"n: %d" % number) for number in range(MAX_TEMPLATES + 1)]
    for head in heads:
        learned(templates, head)
    assert sum(templates.find(head + BODY) is not None for head in heads) == 1


# against a server


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("models")
    write_identity(folder, "echo")
    lock = ["inference:x-key=secret"]
    with running(
        folder, allow_grpc=False, http_restricted_api=lock, allowed_hosts=["models.example"]
    ) as one:
        yield one


class Client:
    """One connection, whose requests differ in nothing but what is given."""

    def __init__(self, server: Server) -> None:
        self._socket = socket.create_connection(("127.0.0.1", server.http_port), timeout=60)
        self._file = self._socket.makefile("rb")

    def send(self, *pieces: bytes) -> None:
        for piece in pieces:
            self._socket.sendall(piece)

    def answer(self) -> tuple[int, dict[str, str], bytes]:
        status = int(self._file.readline().split()[1])
        headers = {}
        while line := self._file.readline().strip().decode():
            name, _, value = line.partition(": ")
            headers[name.lower()] = value
        return status, headers, self._file.read(int(headers["content-length"]))

    def is_closed(self) -> bool:
        return self._file.read(1) == b""

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self._file.close()
        self._socket.close()


def request(value: float, *lines: str, key: str = "secret", host: str = "models.example") -> bytes:
    """All have bodies of one length."""
    body = infer_body(2).replace(b"1.5, 1.5", b"1.5, %.1f" % value)
    head = f"POST {INFER} HTTP/1.1\r\nHost: {host}\r\nX-Key: {key}\r\n"
    head += "".join(f"{line}\r\n" for line in lines) + f"Content-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def numbers(body: bytes) -> list[float]:
    found: list[float] = json.loads(body)["outputs"][0]["data"]
    return found


def test_each_request_with_a_known_head_gets_its_own_answer(server: Server) -> None:
    ids = set()
    with Client(server) as client:
        for value in range(9):
            client.send(request(value))
            status, headers, body = client.answer()
            assert (status, numbers(body)) == (200, [1.5, value])
            ids.add(headers["x-request-id"])
    assert len(ids) == 9


def test_a_known_head_may_come_in_pieces_and_with_others(server: Server) -> None:
    with Client(server) as client:
        for value in range(4):
            client.send(request(value))
            assert numbers(client.answer()[2]) == [1.5, value]
        whole = request(5)
        client.send(whole[:20], whole[20:-5], whole[-5:])
        assert numbers(client.answer()[2]) == [1.5, 5]
        client.send(request(6) + request(7) + request(8)[:-3], request(8)[-3:], request(9))
        assert [numbers(client.answer()[2])[1] for _ in range(4)] == [6, 7, 8, 9]
        client.send(b"GET /v2 HTTP/1.1\r\nHost: models.example\r\n\r\n")
        assert client.answer()[0] == 200
        client.send(request(2))
        assert numbers(client.answer()[2]) == [1.5, 2]


def test_a_known_head_is_held_against_the_lock_each_time(server: Server) -> None:
    with Client(server) as client:
        for _ in range(5):
            client.send(request(1, key="wrong!"))
            assert client.answer()[0] == 403
            client.send(request(1))
            assert client.answer()[0] == 200


def test_a_host_that_is_not_ours_is_refused_each_time(server: Server) -> None:
    with Client(server) as ours:
        for _ in range(4):
            ours.send(request(1))
            assert ours.answer()[0] == 200
    with Client(server) as client:
        for _ in range(4):
            client.send(request(1, host="evil.example"))
            assert client.answer()[0] == 421


def test_a_connection_that_is_to_close_closes_each_time(server: Server) -> None:
    for _ in range(4):
        with Client(server) as client:
            client.send(request(1, "Connection: close"))
            assert client.answer()[0] == 200
            assert client.is_closed()


def test_a_known_head_keeps_its_deadline_and_its_id(server: Server) -> None:
    with Client(server) as client:
        for _ in range(4):
            client.send(request(1, "X-Request-Id: mine"))
            assert client.answer()[1]["x-request-id"] == "mine"
        for _ in range(4):
            client.send(request(1, "grpc-timeout: 1n"))  # it has passed before it is queued
            assert client.answer()[0] == 503

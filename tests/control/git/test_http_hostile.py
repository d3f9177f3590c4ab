"""What no git client sends: names that lead elsewhere, lies about lengths, bodies without end."""

import base64
import contextlib
import gzip
import os
import random
import select
from collections.abc import Iterator
from pathlib import Path

import pytest

from control.repository_settings import PushBudgets, RepositorySettings
from repository.git.receive import ReceiveTiming
from support.git_http import git, work_tree
from support.git_server import Served, eventually, git_server, read_to_end

UPLOAD, RECEIVE = "git-upload-pack", "git-receive-pack"
GARBAGE = b"this is no packet line"


@pytest.fixture(scope="module")
def server(migrated_sqlite: Path) -> Iterator[Served]:
    with git_server(migrated_sqlite) as running:
        running.user("ada", "operator")
        running.create("zoo")
        yield running


@pytest.fixture(scope="module")
def token(server: Served) -> str:
    return server.token("ada")


@pytest.fixture(scope="module")
def hasty(migrated_sqlite: Path) -> Iterator[Served]:
    """Waits two seconds for the next byte, and no longer."""
    with git_server(migrated_sqlite, ReceiveTiming(stall_s=2.0), stall_s=2.0) as running:
        running.user("ada", "operator")
        running.create("zoo")
        running.create("small", RepositorySettings(budgets=PushBudgets(max_pack_bytes=1)))
        yield running


def request_of(
    method: str, target: str, token: str, *headers: str, version: str = "1.1", body: bytes = b""
) -> bytes:
    packed = base64.b64encode(f"x:{token}".encode()).decode()
    lines = [f"{method} /git/{target} HTTP/{version}", "Host: 127.0.0.1", *headers]
    if token:
        lines.append(f"Authorization: Basic {packed}")
    return "\r\n".join([*lines, "", ""]).encode() + body


def post(service: str, token: str, *headers: str, name: str = "zoo", body: bytes = b"") -> bytes:
    kind = f"Content-Type: application/x-{service}-request"
    return request_of("POST", f"{name}.git/{service}", token, kind, *headers, body=body)


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1])


@pytest.mark.parametrize(
    "path",
    [
        "../zoo.git/info/refs",
        "%2e%2e/zoo.git/info/refs",
        "..%2fzoo.git/info/refs",
        "a/../zoo.git/info/refs",
        "a%2fzoo.git/info/refs",
        "zoo%2egit/info/refs",
        "zoo.git%00/info/refs",
        "ZOO.git/info/refs",
        "..git/info/refs",
        "...git/info/refs",
        "--upload-pack=x.git/info/refs",
        "zoo/info/refs",
        ".git/info/refs",
        "",
    ],
)
def test_a_name_that_is_none_is_not_found(server: Served, token: str, path: str) -> None:
    assert server.ask("GET", f"{path}?service={UPLOAD}", token).status == 404


@pytest.mark.parametrize(
    "rest",
    [
        "HEAD",
        "config",
        "objects/info/packs",
        "objects/pack/../../config",
        "info/../config",
        "hooks/pre-receive",
        "git-upload-archive",
        "info/refs/",
        "",
    ],
)
def test_nothing_else_of_a_repository_is_served(server: Served, token: str, rest: str) -> None:
    assert server.ask("GET", f"zoo.git/{rest}", token).status == 404
    assert server.ask("POST", f"zoo.git/{rest}", token, b"").status == 404


@pytest.mark.parametrize("query", ["", "?service=", "?service=git-upload-archive", "?a=b"])
def test_the_dumb_protocol_is_refused_with_a_sentence(
    server: Served, token: str, query: str
) -> None:
    found = server.ask("GET", f"zoo.git/info/refs{query}", token)
    assert found.status == 403
    assert b"only git's smart protocol is supported here" in found.body


def test_two_services_at_once_are_none(server: Served, token: str) -> None:
    query = f"service={UPLOAD}&service={RECEIVE}"
    assert server.ask("GET", f"zoo.git/info/refs?{query}", token).status == 403


def test_what_the_query_says_does_not_turn_a_push_into_a_fetch(server: Served) -> None:
    reads = server.token("ada", "read")
    kind = {"Content-Type": f"application/x-{RECEIVE}-request"}
    path = f"zoo.git/{RECEIVE}?service={UPLOAD}"
    found = server.ask("POST", path, reads, b"0000", kind)
    assert found.status == 403
    assert b"may not push" in found.body


def test_the_probe_before_a_large_push_is_answered(server: Served, token: str) -> None:
    kind = {"Content-Type": f"application/x-{RECEIVE}-request"}
    found = server.ask("POST", f"zoo.git/{RECEIVE}", token, b"0000", kind)
    assert (found.status, found.body) == (200, b"")
    assert found.headers["content-type"] == f"application/x-{RECEIVE}-result"
    assert "no-cache" in found.headers["cache-control"]


def test_another_content_type_is_refused(server: Served, token: str) -> None:
    kind = {"Content-Type": "text/plain"}
    assert server.ask("POST", f"zoo.git/{RECEIVE}", token, b"0000", kind).status == 415


def test_another_content_encoding_is_refused(server: Served, token: str) -> None:
    headers = {"Content-Type": f"application/x-{UPLOAD}-request", "Content-Encoding": "br"}
    assert server.ask("POST", f"zoo.git/{UPLOAD}", token, b"0000", headers).status == 415


def test_a_page_of_another_site_cannot_push(server: Served, token: str) -> None:
    headers = {
        "Content-Type": f"application/x-{RECEIVE}-request",
        "Origin": "https://evil.example",
    }
    assert server.ask("POST", f"zoo.git/{RECEIVE}", token, b"0000", headers).status == 403


def test_a_host_that_is_not_ours_is_refused(server: Served, token: str) -> None:
    path = f"zoo.git/info/refs?service={UPLOAD}"
    assert server.ask("GET", path, token, headers={"Host": "evil.example"}).status == 421


@pytest.mark.parametrize("service", [UPLOAD, RECEIVE])
def test_what_is_no_git_request_is_called_malformed(
    server: Served, token: str, service: str
) -> None:
    kind = {"Content-Type": f"application/x-{service}-request"}
    found = server.ask("POST", f"zoo.git/{service}", token, GARBAGE, kind)
    assert found.status == 400
    assert str(server.store).encode() not in found.body


def test_a_packet_over_which_git_aborts_is_malformed(server: Served, token: str) -> None:
    asked = b"0014command=ls-refs\n" + b"0002"  # the end of a response, which no client sends
    headers = {"Content-Type": f"application/x-{UPLOAD}-request", "Git-Protocol": "version=2"}
    found = server.ask("POST", f"zoo.git/{UPLOAD}", token, asked, headers)
    assert (found.status, b"git cannot parse this request" in found.body) == (400, True)


def test_a_body_that_is_no_gzip_is_malformed(server: Served, token: str) -> None:
    headers = {"Content-Type": f"application/x-{UPLOAD}-request", "Content-Encoding": "gzip"}
    found = server.ask("POST", f"zoo.git/{UPLOAD}", token, GARBAGE, headers)
    assert (found.status, b"not gzip" in found.body) == (400, True)


def test_a_gzip_bomb_is_refused(server: Served, token: str) -> None:
    headers = {"Content-Type": f"application/x-{UPLOAD}-request", "Content-Encoding": "gzip"}
    bomb = gzip.compress(b"0004" * (32 * 2**20 // 4))
    assert server.ask("POST", f"zoo.git/{UPLOAD}", token, bomb, headers).status in (400, 413)


def test_a_pack_above_the_budget_is_refused_before_it_is_read(hasty: Served) -> None:
    head = f"Content-Length: {2**30}"
    found = hasty.raw(post(RECEIVE, hasty.token("ada"), head, name="small", body=b"00"))
    assert found.status == 413
    assert b"git lfs track" in found.body
    assert found.headers["connection"] == "close"


def test_expect_continue_is_refused_before_it_is_continued(server: Served) -> None:
    with server.connected() as connection:
        connection.sendall(post(RECEIVE, "", "Content-Length: 4", "Expect: 100-continue"))
        assert status(read_to_end(connection)) == 401


def test_expect_continue_is_told_to_go_on(server: Served, token: str) -> None:
    head = post(RECEIVE, token, "Content-Length: 4", "Expect: 100-continue", "Connection: close")
    with server.connected() as connection:
        connection.sendall(head)
        assert status(connection.recv(4096)) == 100
        connection.sendall(b"0000")
        assert status(read_to_end(connection)) == 200


def test_a_body_shorter_than_its_length_runs_into_the_deadline(hasty: Served) -> None:
    said = post(RECEIVE, hasty.token("ada"), "Content-Length: 100", body=b"0000")
    found = hasty.raw(said)
    assert (found.status, b"no byte moved for 2 s" in found.body) == (503, True)
    assert eventually(lambda: len(hasty.keys) == 0)


def test_a_body_longer_than_its_length_ends_the_connection(server: Served, token: str) -> None:
    with server.connected() as connection:
        connection.sendall(post(RECEIVE, token, "Content-Length: 4", body=b"0000GARBAGE\r\n\r\n"))
        assert read_to_end(connection).count(b" 200 OK") <= 1
    assert eventually(lambda: len(server.keys) == 0)


def test_two_lengths_are_refused(server: Served, token: str) -> None:
    both = ("Content-Length: 4", "Transfer-Encoding: chunked")
    assert server.raw(post(RECEIVE, token, *both, body=b"0000")).status == 400


def test_a_slow_body_ends_with_the_deadline(hasty: Served) -> None:
    head, body = ("Transfer-Encoding: chunked",), b"4\r\n0011\r\n"
    found = hasty.raw(post(UPLOAD, hasty.token("ada"), *head, body=body))
    assert (found.status, b"no byte moved for 2 s" in found.body) == (503, True)


def test_an_endless_fetch_request_is_cut_off(server: Served, token: str) -> None:
    head = post(UPLOAD, token, "Transfer-Encoding: chunked")
    line = b"0032want " + b"1" * 40 + b"\n"
    assert status(endless(server, head, line * 1000)) in (200, 400, 413)


def test_an_endless_body_of_nobody_is_cut_off(server: Served) -> None:
    head = post(RECEIVE, "", "Transfer-Encoding: chunked")
    assert status(endless(server, head, bytes(65536))) == 401


def endless(server: Served, head: bytes, piece: bytes) -> bytes:
    """Send for as long as anybody listens; what was answered."""
    chunk = b"%x\r\n%s\r\n" % (len(piece), piece)
    answer = b""
    with server.connected() as connection, contextlib.suppress(ConnectionError):
        connection.sendall(head)
        while True:
            if select.select([connection], [], [], 0)[0]:
                answer += connection.recv(65536)
            connection.sendall(chunk)
    return answer


def test_http_1_0_is_refused_and_told_why(server: Served, token: str) -> None:
    for request in (
        request_of("GET", f"zoo.git/info/refs?service={UPLOAD}", token, version="1.0"),
        request_of("POST", f"zoo.git/{RECEIVE}", token, "Content-Length: 4", version="1.0"),
    ):
        found = server.raw(request + b"0000")
        assert (found.status, b"proxy_http_version 1.1" in found.body) == (505, True)


def test_a_pusher_who_goes_leaves_no_key_and_no_quarantine(server: Served, token: str) -> None:
    with server.connected() as connection:
        connection.sendall(post(RECEIVE, token, "Transfer-Encoding: chunked", body=b"4\r\n00"))
        assert eventually(lambda: len(server.keys) == 1)
    assert eventually(lambda: len(server.keys) == 0)
    assert not list((server.bare("zoo").path / "objects").glob("tmp_objdir-*"))
    assert not children_in(server.bare("zoo").path)


@pytest.fixture(scope="module")
def fetching(hasty: Served, tmp_path_factory: pytest.TempPathFactory) -> bytes:
    """A request to the hasty server for more than the connection's buffers hold."""
    name, work = hasty.create("large"), tmp_path_factory.mktemp("large") / "work"
    token = hasty.token("ada")
    work_tree(work, {"models/m/1/model.onnx": random.Random(7).randbytes(16 * 2**20)})
    assert eventually(lambda: hasty.push(work, name, token).returncode == 0)
    body = f"0032want {git(work, 'rev-parse', 'HEAD')}\n00000009done\n".encode()
    return post(UPLOAD, token, f"Content-Length: {len(body)}", name=name, body=body)


def test_a_fetcher_who_goes_takes_git_with_it(hasty: Served, fetching: bytes) -> None:
    with hasty.connected() as connection:
        connection.sendall(fetching)
        assert connection.recv(12) == b"HTTP/1.1 200"
    assert eventually(lambda: not children_in(hasty.bare("large").path))


def test_a_fetcher_who_stops_reading_is_let_go(hasty: Served, fetching: bytes) -> None:
    with hasty.connected() as connection:
        connection.sendall(fetching)
        assert connection.recv(12) == b"HTTP/1.1 200"
        assert eventually(lambda: not children_in(hasty.bare("large").path))


def children_in(folder: Path) -> list[str]:
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if os.readlink(process / "cwd") == str(folder):
                found.append(process.name)
    return found


def test_credentials_are_never_in_an_answer_or_a_log(
    server: Served, token: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    answers = [
        server.raw(post(UPLOAD, token, "Content-Length: 22", body=GARBAGE)),
        server.raw(request_of("GET", "none.git/info/refs", token)),
    ]
    packed = base64.b64encode(f"x:{token}".encode())
    said = [f"{one.headers} {one.body!r}".encode() for one in answers]
    for text in (*said, caplog.text.encode()):
        assert token.encode() not in text
        assert packed not in text

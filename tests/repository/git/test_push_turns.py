"""Pushes that stall, wait for their turn, or are none."""

import contextlib
import http.client
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from repository.git.contents import objects
from repository.git.receive import ReceiveTiming
from support.git_http import (
    DEADLINE_SECS,
    GitServer,
    client,
    git,
    serving,
    short_folder,
    work_tree,
)
from support.git_processes import eventually, processes_on


@pytest.fixture(scope="module")
def server() -> Iterator[GitServer]:
    with short_folder() as root, serving(root) as running:
        yield running


@pytest.fixture
def name(server: GitServer, request: pytest.FixtureRequest) -> str:
    made = f"r{abs(hash(request.node.name)):x}"
    server.create(made)
    server.requests.clear()
    server.failures.clear()
    return made


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return work_tree(tmp_path / "work")


def test_a_body_that_stalls_is_ended(work: Path):
    with short_folder() as root, serving(root, pace=ReceiveTiming(stall_s=0.3)) as server:
        repository = server.create("zoo").path
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            head = "POST /zoo.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
            connection.sendall(head.encode() + b"00")
            assert eventually(lambda: bool(server.failures))
        assert "no byte moved for 0.3 s" in str(server.failures[0])
        assert eventually(lambda: not processes_on(repository))


def test_more_exchanges_than_may_wait_are_refused_at_once(work: Path):
    pace = ReceiveTiming(most_at_once=1, most_waiting=0)
    with short_folder() as root, serving(root, pace=pace) as server:
        server.create("zoo")
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            head = "POST /zoo.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
            connection.sendall(head.encode() + b"00")
            assert eventually(lambda: bool(processes_on(server.bare("zoo").path)))
            assert client(work, "push", server.url("zoo"), "main").returncode
    assert "'zoo' is busy: 1 fetches and pushes are under way and 0 wait" in str(server.failures[0])


def test_one_that_waits_too_long_for_its_turn_is_told_so(work: Path):
    pace = ReceiveTiming(most_at_once=1, wait_s=0.3)
    with short_folder() as root, serving(root, pace=pace) as server:
        server.create("zoo")
        with socket.create_connection(("127.0.0.1", server.port)) as connection:
            head = "POST /zoo.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nContent-Length: 9\r\n\r\n"
            connection.sendall(head.encode() + b"00")
            assert eventually(lambda: bool(processes_on(server.bare("zoo").path)))
            assert client(work, "push", server.url("zoo"), "main").returncode
    assert "none of 1 fetches and pushes ended within 0.3 s" in str(server.failures[0])


def test_twelve_pushes_at_once_all_get_their_turn(work: Path):
    with short_folder() as root, serving(root, pace=ReceiveTiming(most_at_once=2)) as server:
        server.create("zoo")
        with ThreadPoolExecutor(12) as pool:
            pushed = pool.map(
                lambda number: client(work, "push", server.url("zoo"), f"main:branch-{number}"),
                range(12),
            )
            assert [one.stderr for one in pushed if one.returncode] == []
        assert len(server.call(objects.refs(server.bare("zoo").path))) == 12


def test_a_request_that_is_no_push_harms_nobody(server: GitServer, name: str, work: Path):
    address = f"127.0.0.1:{server.port}"
    for content in (b"", b"0000", b"zzzz", b"ffff" + b"x" * 100, b"0" * 10_000):
        connection = http.client.HTTPConnection(address, timeout=DEADLINE_SECS)
        with (
            contextlib.closing(connection),
            contextlib.suppress(http.client.HTTPException, OSError),
        ):
            connection.request("POST", f"/{name}.git/git-receive-pack", content)
            connection.getresponse().read()
    git(work, "push", "--quiet", server.url(name), "main")
    assert eventually(lambda: not processes_on(server.bare(name).path))

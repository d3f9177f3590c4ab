"""The REST listener in operation: its address, and crowds of clients that go, stall or stay."""

import asyncio
import http.client
import random
import resource
import socket
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as triton

from support.http import INFER, ask, infer_body
from support.server import Server, free_ports, running, write_identity

CROWD = 1000
SLOW = "/v2/models/slow/infer"


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    write_identity(folder, "echo")
    write_identity(folder, "slow", delay_ms=20)
    return folder


@pytest.fixture(scope="module")
def server(repository: Path) -> Iterator[Server]:
    with running(repository, allow_grpc=False) as one:
        yield one


@pytest.fixture(autouse=True)
def many_files() -> Iterator[None]:
    """A crowd needs more open files than some shells allow."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(hard, 8192), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


class UnixConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=60)
        self._path = str(path)

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


def unix_status(path: Path) -> int:
    connection = UnixConnection(path)
    try:
        connection.request("POST", INFER, infer_body())
        return connection.getresponse().status
    finally:
        connection.close()


@pytest.mark.slow
def test_rest_on_a_unix_socket(repository: Path, tmp_path: Path) -> None:
    path = tmp_path / "rest.sock"
    with socket.socket(socket.AF_UNIX) as left_behind:
        left_behind.bind(str(path))
    flags = {"allow_grpc": False, "http_address": f"unix:{path}", "wait": False}
    with running(repository, **flags) as one:
        one.wait_for(lambda: "READY" in one.log() and "REST" in one.log(), "the banner")
        assert unix_status(path) == 200
        assert f"unix:{path}" in one.log()
        assert one.get("/metrics", one.metrics_port)[0] == 200
        with running(repository, **flags) as second:
            assert second.wait_exit() == 1
            assert f"cannot listen for REST on unix:{path}: another server" in second.log()
        assert unix_status(path) == 200
        assert one.stop() == 0
    assert not path.exists()


@pytest.mark.slow
def test_rest_on_ipv6(repository: Path) -> None:
    with running(repository, allow_grpc=False, http_address="::1", wait=False) as one:
        one.wait_for(lambda: f"http://[::1]:{one.http_port}" in one.log(), "the banner")
        connection = http.client.HTTPConnection("::1", one.http_port, timeout=60)
        connection.request("POST", INFER, infer_body())
        assert connection.getresponse().status == 200
        connection.close()


@pytest.mark.slow
def test_two_servers_share_a_port_when_both_say_so(repository: Path) -> None:
    (port,) = free_ports(1)
    flags = {"allow_grpc": False, "allow_metrics": False, "http_port": port}
    with (
        running(repository, reuse_http_port=True, **flags),
        running(repository, reuse_port=True, **flags) as second,
    ):
        for _ in range(20):
            assert ask(second, "POST", INFER, infer_body()).status == 200
        with running(repository, wait=False, **flags) as third:
            assert third.wait_exit() == 1
            assert f"port {port}" in third.log()


def head_of(body: bytes, path: str) -> bytes:
    return (
        f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n".encode()
    )


def test_a_thousand_connections_at_once_are_served(server: Server) -> None:
    body = infer_body()

    async def one(ready: asyncio.Barrier) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
        await ready.wait()
        writer.write(head_of(body, SLOW) + body)
        status = await reader.readline()
        writer.close()
        await writer.wait_closed()
        return status

    async def crowd() -> list[bytes]:
        ready = asyncio.Barrier(CROWD)
        return await asyncio.gather(*(one(ready) for _ in range(CROWD)))

    assert set(asyncio.run(asyncio.wait_for(crowd(), 300))) == {b"HTTP/1.1 200 OK\r\n"}


def test_slow_readers_hold_no_thread_and_bounded_memory(server: Server) -> None:
    readers, count = 200, 200_000
    body = infer_body(count)  # 0.8 MB; so is the answer
    ask(server, "POST", INFER, body)
    threads, before = usage(server)
    lines = []
    try:
        for _ in range(readers):
            line = socket.socket()
            lines.append(line)
            line.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            line.connect(("127.0.0.1", server.http_port))
            line.settimeout(60)
            line.sendall((head_of(body, INFER) + body) * 2)  # the second waits for the first
        server.wait_for(lambda: requests_of(server) > 0, "the metrics")
        assert ask(server, "POST", INFER, infer_body()).status == 200
        threads_now, now = usage(server)
        assert threads_now < threads + readers // 2  # a few of its own come and go
        assert now - before < readers * len(body) * 2.5 + (64 << 20)
        for line in lines[:5]:
            assert line.recv(20).startswith(b"HTTP/1.1 200")
    finally:
        for line in lines:
            line.close()


def usage(server: Server) -> tuple[int, int]:
    """(threads, bytes of memory) of the server's process."""
    rows = dict(
        line.split(":", 1) for line in Path(f"/proc/{server.pid}/status").read_text().splitlines()
    )
    return int(rows["Threads"]), int(rows["VmRSS"].split()[0]) * 1024


def requests_of(server: Server, name: str = "success") -> int:
    text = server.get("/metrics", server.metrics_port)[1].decode()
    return sum(
        int(float(line.split()[-1]))
        for line in text.splitlines()
        if line.startswith(f"nv_inference_request_{name}")
    )


def pending(server: Server) -> float:
    text = server.get("/metrics", server.metrics_port)[1].decode()
    return sum(
        float(line.split()[-1])
        for line in text.splitlines()
        if line.startswith("nv_inference_pending_request_count{")
    )


def test_a_thousand_clients_that_go_at_random_moments_leave_nothing_behind(
    server: Server,
) -> None:
    body = infer_body(500)
    chance = random.Random(7)

    async def one(sent: int, stay: float) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", server.http_port)
        writer.write((head_of(body, SLOW) + body)[:sent])
        await writer.drain()
        if stay:
            await asyncio.wait([asyncio.ensure_future(reader.read(1))], timeout=stay)
        writer.transport.abort()

    async def crowd() -> None:
        whole = len(head_of(body, SLOW)) + len(body)
        for _ in range(10):
            moments = [
                (chance.randrange(whole) if chance.random() < 0.3 else whole, chance.random() / 5)
                for _ in range(CROWD // 10)
            ]
            await asyncio.gather(*(one(sent, stay) for sent, stay in moments))

    asyncio.run(asyncio.wait_for(crowd(), 300))
    server.wait_for(lambda: pending(server) == 0, "an empty queue")
    server.wait_for(lambda: open_connections(server) == 0, "every connection to be closed")
    assert ask(server, "POST", SLOW, infer_body()).status == 200
    assert "Traceback" not in server.log()


def open_connections(server: Server) -> int:
    """The server's ends of connections to the REST port."""
    port = f":{server.http_port:04X}"
    rows = Path("/proc/net/tcp").read_text().splitlines()[1:]
    return sum(row.split()[1].endswith(port) and row.split()[3] == "01" for row in rows)


def test_grpc_on_a_unix_socket_and_on_ipv6(repository: Path, tmp_path: Path) -> None:
    path = tmp_path / "grpc.sock"
    asked = triton.InferInput("INPUT0", [1, 1], "FP32")
    asked.set_data_from_numpy(np.ones((1, 1), np.float32))
    for address in (f"unix:{path}", "::1"):
        with running(repository, allow_http=False, grpc_address=address, wait=False) as one:
            one.wait_for(lambda: "gRPC" in one.log(), "the banner")
            url = address if path.name in address else f"[::1]:{one.grpc_port}"
            assert url in one.log()
            with triton.InferenceServerClient(url) as client:
                assert client.infer("echo", [asked]).as_numpy("OUTPUT0") == 1
            assert one.stop() == 0
    assert not path.exists()

"""Clients that connect in one burst are let in together, also over TLS, and none after the end;
those who come while a listener stops keep it from nothing."""

import asyncio
import socket
import ssl
import time
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop

from server.http1 import listener as http1
from server.http2 import listener as http2
from server.http2.limits import unbounded
from server.listen_address import ListenAddress, open_place
from support.tls import make_certificates, server_context

CLIENTS = 200


class Members(list[asyncio.Protocol]):
    """The protocols of the clients that are in."""

    def connect(self) -> asyncio.Protocol:
        members = self

        class Arrival(asyncio.Protocol):
            def connection_made(self, transport: asyncio.BaseTransport) -> None:
                members.append(self)

        return Arrival()


def _run(main: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(main)


def _clients(stack: ExitStack, port: int, count: int) -> list[socket.socket]:
    """Connected, as far as the system does that by itself."""
    return [
        stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)
    ]


def test_a_burst_is_let_in_within_a_few_turns_of_the_loop() -> None:
    async def main() -> None:
        members = Members()
        opened = await open_place(ListenAddress("127.0.0.1", 0), members.connect)
        with ExitStack() as stack:
            stack.callback(opened.close)
            _clients(stack, opened.port, CLIENTS)
            turns = 0
            while len(members) < CLIENTS:
                await asyncio.sleep(0)
                turns += bool(members)
                assert turns < CLIENTS / 10

    _run(main())


def test_clients_that_break_off_their_handshake_leave_the_others_theirs(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    certificates = make_certificates(tmp_path)
    tls = server_context(certificates)
    trusting = ssl.create_default_context(cafile=str(certificates.authority))
    trusting.check_hostname = False

    async def main() -> None:
        members = Members()
        opened = await open_place(ListenAddress("127.0.0.1", 0, tls), members.connect)
        with ExitStack() as stack:
            stack.callback(opened.close)
            for client in _clients(stack, opened.port, 20):
                client.sendall(b"no handshake\r\n")
            joining = (
                asyncio.open_connection(sock=client, ssl=trusting, server_hostname="")
                for client in _clients(stack, opened.port, 20)
            )
            async with asyncio.timeout(60):
                joined = await asyncio.gather(*joining)
            for _, writer in joined:
                writer.transport.abort()
        assert len(members) == 20

    _run(main())
    assert "never retrieved" not in caplog.text


def test_nobody_is_let_in_after_the_end() -> None:
    async def main() -> None:
        members = Members()
        opened = await open_place(ListenAddress("127.0.0.1", 0), members.connect)
        opened.close()
        await asyncio.sleep(0)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", opened.port))

    _run(main())


@pytest.mark.parametrize(
    ("turns", "secure"), [(0, False), (1, False), (2, False), (3, False), (10, True), (30, True)]
)
def test_listeners_stop_while_clients_arrive(turns: int, secure: bool, tmp_path: Path) -> None:
    certificates = make_certificates(tmp_path)
    trusting = ssl.create_default_context(cafile=str(certificates.authority))

    async def main() -> None:
        here = ListenAddress("127.0.0.1", 0, server_context(certificates) if secure else None)
        rest = await http1.start(_no_app, here)
        grpc = await http2.listen({}, here, unbounded(2**20))
        with ExitStack() as stack:
            for port in (rest.port, grpc.port):
                _clients(stack, port, 10)
                for client in _clients(stack, port, 10 if secure else 0):
                    greeting = asyncio.open_connection(
                        sock=client, ssl=trusting, server_hostname="localhost"
                    )
                    greetings.append(asyncio.create_task(greeting))
            await _turns(turns)
            async with asyncio.timeout(20):
                await rest.stop(time.monotonic_ns() + 600 * 10**9)
                await grpc.stop(600.0)
                for one in await asyncio.gather(*greetings, return_exceptions=True):
                    if not isinstance(one, BaseException):
                        one[1].transport.abort()
                await _turns(10)

    greetings: list[asyncio.Task[Any]] = []
    _run(main())


async def _turns(count: int) -> None:
    """Of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


async def _no_app(scope: Any, receive: Any, send: Any) -> None:
    """Never called."""

"""Clients that connect in one burst are let in together, also over TLS, and none after the end."""

import asyncio
import socket
import ssl
from collections.abc import Coroutine
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import uvloop

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

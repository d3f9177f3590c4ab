"""A port that somebody else has: said once, tried until it is free; the rest works meanwhile."""

import asyncio
import logging
import socket
import time
from pathlib import Path

import pytest
from starlette.responses import PlainTextResponse

from server.control_process.admin_listener import RETRY_S, AdminListener
from server.http1.connection import Http1Connection
from server.listen_address import ListenAddress
from support.yard import yard


def test_a_taken_port_is_named_and_served_as_soon_as_it_is_free(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.INFO), socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        asyncio.run(_opened_once_free(taken))
    said = [record.getMessage() for record in caplog.records]
    assert sum("cannot be opened: " in line for line in said) == 1
    assert sum("is open now" in line for line in said) == 1


async def _opened_once_free(taken: socket.socket) -> None:
    port, opened = taken.getsockname()[1], asyncio.Event()
    listener = AdminListener(
        PlainTextResponse("here"),
        ListenAddress("127.0.0.1", port),
        Http1Connection,
        opened.set,
        retry_s=0.01,
    )
    await listener.open()
    running = asyncio.create_task(listener.run())
    with pytest.raises(TimeoutError):  # after several tries
        await asyncio.wait_for(opened.wait(), 0.05)
    taken.close()
    await asyncio.wait_for(opened.wait(), 10)
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert (await reader.readline()).startswith(b"HTTP/1.1 200")
    writer.close()
    await running
    await listener.stop()


@pytest.mark.slow
def test_a_taken_admin_port_is_named_once_and_opened_when_it_is_free(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with yard(tmp_path, admin_port=port) as y:  # it answers over its Unix socket
            control = y.control_pid()
            until = time.monotonic() + 1.2 * RETRY_S
            y.wait_for(lambda: time.monotonic() > until, "one more try")
            taken.close()
            y.wait_for(lambda: f"admin    http://127.0.0.1:{port}" in y.server.log(), "the port")
            assert y.server.get("/login", port=port)[0] == 200
            assert y.control_pid() == control
            said = y.server.log()
    assert said.count("cannot be opened") == 1
    assert f"the admin port 127.0.0.1:{port} cannot be opened: " in said
    assert f"the admin port 127.0.0.1:{port} is open now" in said

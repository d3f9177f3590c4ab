"""The gateway's end of the link, against the control process's own."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from control.desired import NOTHING, DesiredState
from control.gateways.link import LinkServer, LoadReport
from server.desired import link
from server.desired.link import ControlLink

pytestmark = pytest.mark.anyio


async def _nobody(told: LoadReport) -> None:
    """Who hears what is loaded."""


async def test_a_state_that_cannot_be_applied_does_not_keep_out_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(link, "BROKEN_S", 0.01)
    broke, applied = asyncio.Event(), asyncio.Event()

    def told(desired: DesiredState) -> None:
        if desired.revision == 1:
            broke.set()
            raise ZeroDivisionError("a bug")
        applied.set()

    server = LinkServer(tmp_path / "link.sock", _nobody)
    await server.open()
    running = asyncio.create_task(ControlLink(tmp_path / "link.sock", "one", told, dict).run())
    try:
        async with asyncio.timeout(60):
            server.hand(replace(NOTHING, revision=1))
            await broke.wait()
            server.hand(replace(NOTHING, revision=2))
            await applied.wait()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await server.close()

    assert "the connection to the control process failed. This is a bug." in caplog.text


async def test_a_link_server_that_closes_ends_its_links_without_a_word(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    before = asyncio.all_tasks()
    connected = asyncio.Event()

    server = LinkServer(tmp_path / "link.sock", _nobody)
    await server.open()
    server.hand(replace(NOTHING, revision=1))
    running = asyncio.create_task(
        ControlLink(tmp_path / "link.sock", "one", lambda _: connected.set(), dict).run()
    )
    try:
        async with asyncio.timeout(60):
            await connected.wait()
            await server.close()
        left = asyncio.all_tasks() - before - {running}
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert not [task for task in left if "LinkServer" in repr(task)]
    assert "Traceback" not in caplog.text

"""The gateway's end of the link, against the control process's own."""

import asyncio
from collections.abc import Callable, Iterator
from errno import ENOSPC
from pathlib import Path

import pytest
from msgspec.structs import replace

from control.desired import NOTHING, DesiredState
from control.gateways.link import LinkServer
from control.gateways.messages import ArmReports, LoadReport
from control.gateways.queries import Query, QueryAnswer
from server.desired import link
from server.desired.link import ControlLink

pytestmark = pytest.mark.anyio


def nothing() -> LoadReport:
    return LoadReport("one", 0, True, (), frozenset())


def no_counts(_server: str, _everything: bool) -> Iterator[ArmReports]:
    return iter(())


def no_answer(_query: Query) -> QueryAnswer:
    raise AssertionError("nobody asks")


def linked(folder: Path, want: Callable[[DesiredState], None]) -> ControlLink:
    return ControlLink(folder / "link.sock", "one", want, nothing, no_counts, no_answer)


async def _nobody(told: LoadReport) -> None:
    """Who hears what is loaded."""


@pytest.mark.parametrize("error", [ZeroDivisionError("a bug"), OSError(ENOSPC, "disk full")])
async def test_a_state_that_cannot_be_applied_does_not_keep_out_the_next(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    error: Exception,
) -> None:
    monkeypatch.setattr(link, "BROKEN_S", 0.01)
    broke, applied = asyncio.Event(), asyncio.Event()

    def told(desired: DesiredState) -> None:
        if desired.revision == 1:
            broke.set()
            raise error
        applied.set()

    server = LinkServer(tmp_path / "link.sock", _nobody)
    await server.open()
    running = asyncio.create_task(linked(tmp_path, told).run())
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
    running = asyncio.create_task(linked(tmp_path, lambda _: connected.set()).run())
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

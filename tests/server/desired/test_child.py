"""The control process is started again whatever ended it, or kept it from starting."""

import asyncio
import sys
from pathlib import Path

import pytest

from server.desired.child import ControlChild
from server.desired.control_start import ControlStart
from server.settings.table import Settings

pytestmark = pytest.mark.anyio


async def test_a_process_that_cannot_be_started_this_moment_is_tried_again(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "nothing"))
    child = ControlChild(ControlStart(server="s", settings=Settings()))
    running = asyncio.create_task(child.run())
    try:
        async with asyncio.timeout(60):
            while child.restarts < 1:
                await asyncio.wait([running], timeout=0.05)
                assert not running.done()
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    assert "the control process cannot be started" in caplog.text
    assert "it is restarted" in caplog.text

"""Stalls of the event loop, really caused and really measured."""

import asyncio
import time

import pytest

from server.metrics.loop_lag import LoopLag


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_a_stall_is_seen_and_forgotten_on_restart() -> None:
    lag = LoopLag()
    await asyncio.sleep(0.03)
    time.sleep(0.2)  # noqa: ASYNC251 - the stall itself
    await asyncio.sleep(0.03)
    assert 0.15 < lag.max_seconds < 1
    assert lag.recent_max_seconds == lag.max_seconds
    lag.restart()
    assert lag.max_seconds == lag.recent_max_seconds == 0
    await asyncio.sleep(0.03)
    assert lag.max_seconds < 0.15
    lag.stop()

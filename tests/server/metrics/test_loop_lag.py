"""Stalls of the event loop: one really caused, and what a tick makes of its lateness."""

import asyncio
import time

import pytest

from server.metrics import loop_lag
from server.metrics.loop_lag import INTERVAL_S, LoopLag


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.mark.anyio
async def test_a_stall_is_seen_and_forgotten_on_restart() -> None:
    lag = LoopLag()
    await asyncio.sleep(0.03)
    time.sleep(0.2)  # noqa: ASYNC251 - the stall itself
    await asyncio.sleep(0.03)
    assert lag.max_seconds > 0.15
    assert lag.recent_max_seconds == lag.max_seconds
    lag.restart()
    assert lag.max_seconds == lag.recent_max_seconds == 0
    lag.stop()


@pytest.mark.anyio
async def test_a_stall_is_as_long_as_a_tick_is_late_and_one_in_time_is_none(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    now, looks = [100.0], [0]

    def clock() -> float:
        looks[0] += 1
        return now[0]

    async def tick() -> None:
        seen = looks[0]
        while looks[0] == seen:  # noqa: ASYNC110 - the tick tells nobody
            await asyncio.sleep(0.001)

    monkeypatch.setattr(loop_lag, "monotonic", clock)
    lag = LoopLag()
    now[0] += INTERVAL_S
    await tick()
    assert lag.max_seconds == 0
    now[0] += INTERVAL_S + 0.2
    await tick()
    assert lag.max_seconds == lag.recent_max_seconds == pytest.approx(0.2)
    assert (lag.take_us(), lag.take_us()) == (200_000, 0)
    lag.stop()

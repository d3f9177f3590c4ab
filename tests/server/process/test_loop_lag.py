"""Stalls of the event loop: really caused, also at the end of a rest, and what lateness means."""

import asyncio
import time

import pytest

from server.process import loop_lag
from server.process.loop_lag import BUSY_SHARE, INTERVAL_S, RECENT_S, RESTING_S, LoopLag, TickPace


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
    now[0] += RECENT_S + loop_lag._SLICE_S
    assert (lag.max_seconds, lag.recent_max_seconds) == (pytest.approx(0.2), 0)
    lag.stop()


@pytest.mark.anyio
async def test_bytes_that_end_a_rest_have_the_stall_that_they_cause_measured() -> None:
    lag = LoopLag()
    while not lag.resting:  # noqa: ASYNC110 - the rest tells nobody
        await asyncio.sleep(0.05)
    lag.wake()
    assert not lag.resting
    time.sleep(0.2)  # noqa: ASYNC251 - the stall itself
    await asyncio.sleep(0.03)
    assert lag.max_seconds > 0.15
    lag.stop()


def test_ticks_rest_without_work_and_return_with_it() -> None:
    pace = TickPace(100.0, 5.0)
    assert pace.following_s(100.0 + RESTING_S / 2, 5.0) == INTERVAL_S, "work may go on"
    assert pace.following_s(100.0 + RESTING_S, 5.0) == RESTING_S
    assert pace.resting
    computed_s = 2 * BUSY_SHARE * RESTING_S
    assert pace.following_s(100.0 + 2 * RESTING_S, 5.0 + computed_s) == INTERVAL_S
    assert not pace.resting

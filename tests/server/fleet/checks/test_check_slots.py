"""Checks that take long are not waited for by those of other models."""

import asyncio
from collections.abc import Sequence

import pytest

from server.fleet.checks.check_slots import CheckSlots

pytestmark = pytest.mark.anyio


async def _begun(slots: CheckSlots, models: Sequence[str]) -> tuple[list[str], asyncio.Event]:
    """Checks that end when the event is set; the models of those that have begun."""
    begun: list[str] = []
    end = asyncio.Event()

    async def check(model: str) -> None:
        async with slots.of(model):
            begun.append(model)
            await end.wait()

    for model in models:
        _tasks.append(asyncio.create_task(check(model)))
    for _ in range(20):
        await asyncio.sleep(0)
    return begun, end


_tasks: list["asyncio.Task[None]"] = []


async def _until(begun: list[str], count: int) -> None:
    async with asyncio.timeout(60):
        while len(begun) < count:  # noqa: ASYNC110 - the timers of the slots are what is waited for
            await asyncio.sleep(0.01)


async def test_one_model_with_many_versions_leaves_room_for_others() -> None:
    begun, end = await _begun(CheckSlots(2, 60, 8), ["many", "many", "many", "other"])
    assert begun == ["many", "other"]
    end.set()
    await _until(begun, 4)


async def test_slow_checks_let_others_past_up_to_a_bound() -> None:
    begun, end = await _begun(CheckSlots(1, 0.01, 2), ["a", "b", "c", "d", "e"])
    await _until(begun, 3)
    for _ in range(100):
        await asyncio.sleep(0)
    assert begun == ["a", "b", "c"]
    end.set()
    await _until(begun, 5)

"""Who waits for events, and who only asks whether the database answers."""

import asyncio
import threading

import pytest

from control.events.event_notifier import EventNotifier

pytestmark = pytest.mark.anyio


async def test_probes_that_come_together_cost_one_look() -> None:
    """Nobody has said who they are: a flood of them must not take the threads of the pumps."""
    looks, begun, go_on = [], threading.Event(), threading.Event()

    def newest() -> int:
        looks.append(1)
        begun.set()
        assert go_on.wait(60)
        return 1

    commits = EventNotifier(newest)
    async with asyncio.timeout(60):
        probes = [asyncio.create_task(commits.answers()) for _ in range(100)]
        await asyncio.to_thread(begun.wait, 60)
        probes[0].cancel()
        go_on.set()
        done = await asyncio.gather(*probes, return_exceptions=True)

    assert len(looks) == 1
    assert done[1:] == [None] * 99


async def test_a_probe_after_another_looks_again() -> None:
    looks: list[int] = []
    commits = EventNotifier(lambda: looks.append(1) or len(looks))

    await commits.answers()
    await commits.answers()

    assert len(looks) == 2


async def test_a_rest_costs_no_look_and_ends_with_the_server() -> None:
    looks: list[int] = []
    commits = EventNotifier(lambda: looks.append(1) or 1)  # type: ignore[func-returns-value]
    async with asyncio.timeout(60):
        resting = asyncio.create_task(commits.rest(3600))
        await asyncio.sleep(0)
        commits.committed()
        await commits.rest(0.0)
        await commits.close()
        await resting
    assert looks == []

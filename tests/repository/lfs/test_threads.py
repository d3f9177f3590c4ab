"""File work in threads that a cancelled caller waits for."""

import asyncio
import threading
from collections.abc import Callable

import pytest

from repository.lfs.threads import in_thread


class Work:
    """Says when it has begun, ends when it is told to."""

    def __init__(self) -> None:
        self.begun = threading.Event()
        self.may_end = threading.Event()
        self.ended = False

    def __call__(self) -> None:
        self.begun.set()
        assert self.may_end.wait(60)
        self.ended = True


async def begun(work: Work) -> "asyncio.Task[None]":
    task = asyncio.create_task(in_thread(work))
    assert await asyncio.to_thread(work.begun.wait, 60)
    return task


def let_end(work: Work) -> Callable[[], None]:
    return lambda: threading.Timer(0.05, work.may_end.set).start()


async def cancel_twice(work: Work) -> None:
    task = await begun(work)
    for _ in range(2):
        task.cancel()
        await asyncio.sleep(0)
    assert not task.done()
    work.may_end.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert work.ended


def test_a_cancelled_caller_returns_only_when_the_work_has_ended():
    asyncio.run(cancel_twice(Work()))


def test_the_end_of_the_loop_waits_for_the_work_too():
    work, seen = Work(), []

    async def caller() -> None:
        try:
            await in_thread(work)
        finally:
            seen.append(work.ended)

    async def main() -> None:
        task = asyncio.create_task(caller())
        await asyncio.to_thread(work.begun.wait, 60)
        asyncio.get_running_loop().call_soon(let_end(work))
        assert not task.done()

    asyncio.run(main())
    assert seen == [True]


def test_what_the_work_returns_or_raises_arrives():
    assert asyncio.run(in_thread(int, "7")) == 7
    with pytest.raises(ValueError):
        asyncio.run(in_thread(int, "x"))

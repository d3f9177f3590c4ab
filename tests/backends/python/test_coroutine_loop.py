"""Where the coroutines of a python model run, and what becomes of what they leave behind."""

import asyncio
import contextlib
import sqlite3
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from backends.python.coroutine_loop import CoroutineLoop

PATIENCE_S = 30.0
LEFT: set[asyncio.Future[None]] = set()
"""Which a loop itself keeps no reference to."""


@pytest.fixture
def loop() -> Iterator[CoroutineLoop]:
    made = CoroutineLoop()
    yield made
    made.close()


async def _thread() -> int:
    await asyncio.sleep(0)
    return threading.get_ident()


async def _leave_task(done: threading.Event) -> None:
    async def later() -> None:
        await asyncio.sleep(0)
        done.set()

    LEFT.add(asyncio.ensure_future(later()))


async def _leave_timer(done: threading.Event) -> None:
    asyncio.get_running_loop().call_later(0.001, done.set)


def test_all_coroutines_run_on_one_thread_whoever_waits_for_them(loop: CoroutineLoop) -> None:
    ran = [loop.run(_thread()), loop.start(_thread()).result(PATIENCE_S)]
    other = threading.Thread(target=lambda: ran.append(loop.run(_thread())), daemon=True)
    other.start()
    other.join(PATIENCE_S)
    ran.append(loop.run(_thread()))
    assert len(ran) == 4
    assert len(set(ran)) == 1


def test_database_connection_of_a_coroutine_serves_the_next(loop: CoroutineLoop) -> None:
    """sqlite3 refuses every thread but the one that connected."""

    async def connect() -> sqlite3.Connection:
        return sqlite3.connect(":memory:")

    async def query(connection: sqlite3.Connection) -> int:
        with contextlib.closing(connection):
            (number,) = connection.execute("select 7").fetchone()
        return int(number)

    connection = loop.run(connect())
    assert loop.start(query(connection)).result(PATIENCE_S) == 7


def test_error_of_a_coroutine_is_raised_where_it_is_waited_for(loop: CoroutineLoop) -> None:
    async def fail() -> None:
        raise ValueError("of the model")

    with pytest.raises(ValueError, match="of the model"):
        loop.run(fail())


def test_coroutine_that_exits_does_so_where_it_is_waited_for_and_the_loop_goes_on(
    loop: CoroutineLoop,
) -> None:
    async def leave() -> None:
        sys.exit(3)

    with pytest.raises(SystemExit):
        loop.run(leave())
    assert loop.run(_thread())


@pytest.mark.parametrize("leave", [_leave_task, _leave_timer], ids=["task", "timer"])
def test_what_a_coroutine_leaves_goes_on_while_nobody_waits(
    loop: CoroutineLoop, leave: Callable[[threading.Event], Coroutine[Any, Any, None]]
) -> None:
    done = threading.Event()
    loop.run(leave(done))
    assert done.wait(PATIENCE_S)


def test_coroutines_of_many_threads_wait_for_each_other_in_one_loop(loop: CoroutineLoop) -> None:
    """Each of two waits until the other has come, whoever runs the loop then."""
    gate: list[asyncio.Event] = []

    async def meet() -> None:
        if gate:
            gate[0].set()
            return
        gate.append(asyncio.Event())
        await gate[0].wait()

    for _ in range(50):
        gate.clear()
        other = threading.Thread(target=loop.run, args=(meet(),), daemon=True)
        other.start()
        loop.run(meet())
        other.join(PATIENCE_S)
        assert not other.is_alive()


def test_coroutine_that_nobody_waits_for_runs_beside_those_that_somebody_does(
    loop: CoroutineLoop,
) -> None:
    started = [loop.start(_thread()) for _ in range(20)]
    ran = [loop.run(_thread()) for _ in range(20)]
    assert len(ran) == len([future.result(PATIENCE_S) for future in started])


def test_loop_that_is_closed_lets_its_thread_end() -> None:
    before = set(threading.enumerate())
    loop = CoroutineLoop()
    (own,) = set(threading.enumerate()) - before
    loop.run(_thread())
    loop.close()
    own.join(PATIENCE_S)
    assert not own.is_alive()

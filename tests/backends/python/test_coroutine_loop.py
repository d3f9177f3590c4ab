"""Who runs the coroutines of a python model, and what becomes of what they leave behind."""

import asyncio
import threading
import time
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


def test_coroutine_runs_on_the_thread_that_waits_for_it(loop: CoroutineLoop) -> None:
    assert loop.run(_thread()) == threading.get_ident()


def test_error_of_a_coroutine_is_raised_where_it_is_waited_for(loop: CoroutineLoop) -> None:
    async def fail() -> None:
        raise ValueError("of the model")

    with pytest.raises(ValueError, match="of the model"):
        loop.run(fail())


@pytest.mark.parametrize("leave", [_leave_task, _leave_timer], ids=["task", "timer"])
def test_what_a_coroutine_leaves_goes_on_while_nobody_waits(
    loop: CoroutineLoop, leave: Callable[[threading.Event], Coroutine[Any, Any, None]]
) -> None:
    done = threading.Event()
    loop.run(leave(done))
    assert done.wait(PATIENCE_S)


def test_waiting_threads_run_their_coroutines_again_after_what_was_left_has_ended(
    loop: CoroutineLoop,
) -> None:
    done = threading.Event()
    loop.run(_leave_task(done))
    assert done.wait(PATIENCE_S)
    until = time.monotonic() + PATIENCE_S
    while loop.run(_thread()) != threading.get_ident():
        assert time.monotonic() < until


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

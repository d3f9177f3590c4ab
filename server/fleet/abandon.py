"""Blocking work on a thread that its caller may stop waiting for: the result is undone then.

A daemon thread, because a load that hangs must not keep the process from exiting.
"""

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


async def work_or_undo(work: Callable[[], T], undo: Callable[[T], None]) -> T:
    """`work()` on a new thread. When cancelled meanwhile, `undo(result)` follows on a thread.

    Raises what `work` raises.
    """
    done: Future[T] = Future()
    done.set_running_or_notify_cancel()  # from here on cancelling the waiter leaves `done` alone
    threading.Thread(target=_run, args=(done, work), name="load", daemon=True).start()
    try:
        return await asyncio.wrap_future(done)
    except asyncio.CancelledError:
        done.add_done_callback(lambda done: _undo(done, undo))
        raise


def _run(done: Future[T], work: Callable[[], T]) -> None:
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001 - carried to whoever waits
        done.set_exception(error)
    else:
        done.set_result(result)


def _undo(done: Future[T], undo: Callable[[T], None]) -> None:
    if done.exception() is None:
        threading.Thread(target=undo, args=(done.result(),), name="unload", daemon=True).start()

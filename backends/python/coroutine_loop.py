"""The asyncio loop of one python model: its coroutines, and whatever they leave behind there.

A coroutine that somebody waits for runs on the thread that waits: handing it to another would cost
two switches of threads for each execution. Between executions a thread of the loop's own runs it,
so that tasks, timers and callbacks go on: at once where tasks are left, otherwise once nobody has
run it for `ASIDE_SECS`.
"""

import asyncio
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any

ASIDE_SECS = 0.1
"""How long a callback may have to wait that comes between executions, when no task is left."""


class CoroutineLoop:
    """Any thread may call. One thread at most runs the loop at any time."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._turn = threading.Condition()
        self._runs = False
        self._kept = False  # the thread of its own runs it
        self._borrowed = 0  # coroutines that another thread runs for who waits
        self._due = False
        self._closed = False
        self._aside_until = time.monotonic() + ASIDE_SECS
        threading.Thread(target=self._keep, name="execute", daemon=True).start()

    def run(self, work: Coroutine[Any, Any, Any]) -> Any:
        """What the coroutine returns or raises; blocks."""
        with self._turn:
            future = self._lend(work) if self._runs else None
            self._runs = True
        if future is not None:
            return future.result()
        try:
            return self._loop.run_until_complete(work)
        finally:
            self._leave()

    def start(self, work: Coroutine[Any, Any, Any]) -> "Future[Any]":
        """Let it run without anybody waiting."""
        with self._turn:
            self._due = True
            self._turn.notify()
            return self._lend(work)

    def close(self) -> None:
        """Run nothing any more."""
        with self._turn:
            self._closed = True
            self._turn.notify()
            if self._kept:
                self._loop.call_soon_threadsafe(self._loop.stop)

    def _lend(self, work: Coroutine[Any, Any, Any]) -> "Future[Any]":
        self._borrowed += 1
        return asyncio.run_coroutine_threadsafe(self._borrow(work), self._loop)

    async def _borrow(self, work: Coroutine[Any, Any, Any]) -> Any:
        try:
            return await work
        finally:
            with self._turn:
                self._borrowed -= 1
            self._loop.call_soon(self._yield)

    def _yield(self) -> None:
        """Let who waits next run the loop itself, where nothing is left to do."""
        with self._turn:
            if self._kept and not self._has_work():
                self._loop.stop()

    def _has_work(self) -> bool:
        return self._borrowed > 0 or bool(asyncio.all_tasks(self._loop))

    def _leave(self) -> None:
        with self._turn:
            self._runs = False
            self._aside_until = time.monotonic() + ASIDE_SECS
            self._due = self._has_work()
            if self._due or self._closed:
                self._turn.notify()

    def _keep(self) -> None:
        """On the thread of its own."""
        while self._wait_for_turn():
            self._loop.run_forever()
            with self._turn:
                self._runs = self._kept = False
                self._due = self._has_work()
                self._aside_until = time.monotonic() + ASIDE_SECS
        self._loop.close()

    def _wait_for_turn(self) -> bool:
        """Take the loop over, when it is due; False once it is closed."""
        with self._turn:
            while not self._closed or self._runs:
                left = self._aside_until - time.monotonic()
                if not (self._runs or self._closed) and (self._due or left <= 0):
                    self._runs = self._kept = True
                    return True
                self._turn.wait(max(left, ASIDE_SECS))
            return False

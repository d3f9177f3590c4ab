"""One thread that waits for every child process at once: ends, heartbeats, printed lines, timers.

Children are started here too: PR_SET_PDEATHSIG kills a child when the *thread* that started it
ends, so that thread must live as long as the server.
"""

import logging
import os
import selectors
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import cache
from typing import TypeVar

_logger = logging.getLogger(__name__)
_T = TypeVar("_T")


class SelectorLoop:
    """A selector loop on a daemon thread. `post` and `call` may be used from any other thread;
    everything else belongs to the loop's own."""

    def __init__(self, name: str) -> None:
        self._selector = selectors.DefaultSelector()
        self._tasks: deque[Callable[[], None]] = deque()
        self._timers: dict[Callable[[], None], tuple[float, float]] = {}
        self._wake = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._selector.register(self._wake, selectors.EVENT_READ, self._run_tasks)
        threading.Thread(target=self._loop, name=name, daemon=True).start()

    def post(self, task: Callable[[], None]) -> None:
        """Run `task` on the loop's thread soon."""
        self._tasks.append(task)
        os.eventfd_write(self._wake, 1)

    def submit(self, task: Callable[[], _T]) -> "Future[_T]":
        """Run `task` on the loop's thread soon; the future has what it returns, or raises."""
        future: Future[_T] = Future()

        def run() -> None:
            try:
                future.set_result(task())
            except BaseException as error:  # noqa: BLE001 - raised again by the caller
                future.set_exception(error)

        self.post(run)
        return future

    def call(self, task: Callable[[], _T], timeout: float | None = None) -> _T:
        """Run `task` on the loop's thread and return, or raise, what it does. Raises `TimeoutError`
        when it was not done after `timeout` seconds; it will be."""
        return self.submit(task).result(timeout)

    def add(self, fd: int, when_readable: Callable[[], None]) -> None:
        """Call `when_readable` whenever `fd` is readable, until `remove(fd)`."""
        self._selector.register(fd, selectors.EVENT_READ, when_readable)

    def remove(self, fd: int) -> None:
        """Forget `fd`, before it is closed; no-op when it is not watched."""
        if fd in self._selector.get_map():
            self._selector.unregister(fd)

    def every(self, interval_secs: float, task: Callable[[], None]) -> None:
        """Call `task` every `interval_secs` until `stop(task)`."""
        self._timers[task] = (time.monotonic() + interval_secs, interval_secs)

    def stop(self, task: Callable[[], None]) -> None:
        """Call `task` no more; no-op when nobody does."""
        self._timers.pop(task, None)

    def _loop(self) -> None:
        while True:
            for key, _ in self._selector.select(self._until_next_timer()):
                self._guard(key.data)
            now = time.monotonic()
            for task, (due, interval) in list(self._timers.items()):
                if due <= now and task in self._timers:
                    self._timers[task] = (now + interval, interval)
                    self._guard(task)

    def _until_next_timer(self) -> float | None:
        if not self._timers:
            return None
        return max(0.0, min(due for due, _ in self._timers.values()) - time.monotonic())

    def _run_tasks(self) -> None:
        os.eventfd_read(self._wake)
        while self._tasks:
            self._guard(self._tasks.popleft())

    @staticmethod
    def _guard(task: Callable[[], None]) -> None:
        """One child's trouble must not blind us to the others."""
        try:
            task()
        except Exception:
            _logger.exception("watching processes failed. This is a bug")


@cache
def watch() -> SelectorLoop:
    """The thread that starts child processes and notices when they end or hang."""
    return SelectorLoop("process-watch")


@cache
def outputs() -> SelectorLoop:
    """The thread that carries what they print; apart, so that a slow log hides no end."""
    return SelectorLoop("process-output")

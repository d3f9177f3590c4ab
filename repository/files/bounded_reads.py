"""Read many folders, one after the other, without waiting for one that does not answer.

A network disk that hangs keeps whoever reads from it, for ever if it must. That folder's thread is
left to it, and another one goes on with the rest.
"""

import threading
from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Generic, TypeVar

MOST_WAITING = 32
"""Folders that may be waited for at once, with a thread each; then nothing else is read."""

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")


class BoundedReads(Generic[K, V]):
    """Calls `read` for keys on threads of its own. What an overdue one brings in the end is what
    the next `all` gets of it. Not for two threads at once."""

    def __init__(self, read: Callable[[K], V], most_waiting: int = MOST_WAITING) -> None:
        self._read = read
        self._most = most_waiting
        self._waiting: dict[K, _ReadingThread[K, V]] = {}

    def all(self, keys: Iterable[K], patience_s: float) -> dict[K, V]:
        """What was read, without what took longer than `patience_s` each. Raises what `read`
        raises."""
        found: dict[K, V] = {}
        fresh = []
        for key in keys:
            waiting = self._waiting.get(key)
            if waiting is None:
                fresh.append(key)
            elif waiting.wait(key, 0):
                del self._waiting[key]
                found |= waiting.results(key)
        todo = iter(fresh)
        while (reading := self._start(todo)) is not None:
            found |= self._gather(reading, patience_s)
        return found

    def _start(self, todo: Iterator[K]) -> "_ReadingThread[K, V] | None":
        if len(self._waiting) >= self._most:
            return None
        first = next(todo, None)
        return None if first is None else _ReadingThread(self._read, first, todo)

    def _gather(self, reading: "_ReadingThread[K, V]", patience_s: float) -> dict[K, V]:
        """All of one thread's until it is done, or hangs."""
        found: dict[K, V] = {}
        while (key := reading.current()) is not None:
            if not reading.wait(key, patience_s):
                reading.leave()
                if not reading.wait(key, 0):
                    self._waiting[key] = reading
                    break
        for key in reading.done():
            found |= reading.results(key)
        return found


class _ReadingThread(Generic[K, V]):
    """One thread that reads the keys it draws, until it is told to leave the rest to another."""

    def __init__(self, read: Callable[[K], V], first: K, rest: Iterator[K]) -> None:
        self._read = read
        self._rest = rest
        self._changed = threading.Condition()
        self._current: K | None = first
        self._left = False
        self._results: dict[K, V | Exception] = {}
        threading.Thread(target=self._run, name="folder-reader", daemon=True).start()

    def current(self) -> K | None:
        with self._changed:
            return self._current

    def wait(self, key: K, seconds: float) -> bool:
        """Whether `key` is read, after at most so long."""
        with self._changed:
            return self._changed.wait_for(lambda: key in self._results, seconds)

    def leave(self) -> None:
        """Draw no more keys."""
        with self._changed:
            self._left = True

    def done(self) -> list[K]:
        with self._changed:
            return list(self._results)

    def results(self, key: K) -> dict[K, V]:
        """What was read of `key`. Raises what it ended with."""
        with self._changed:
            result = self._results.pop(key)
        if isinstance(result, Exception):
            raise result
        return {key: result}

    def _run(self) -> None:
        key = self._current
        while key is not None:
            try:
                result: V | Exception = self._read(key)
            except Exception as error:  # noqa: BLE001 - raised by whoever asks for the result
                result = error
            with self._changed:
                self._results[key] = result
                key = self._current = None if self._left else next(self._rest, None)
                self._changed.notify_all()

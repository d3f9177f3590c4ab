"""What became of each arm's requests: counters that only grow, told to the control process.

The data plane hands every routed Reply in; it is counted when it ends.
"""

import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any

from backends.seam import Instance
from control.statistics.histogram import Histogram
from schedulers.errors import Cancelled, QueueFull
from schedulers.reply import Reply
from schedulers.request import InferResponse
from server.errors import status_of
from server.routing.outputs import empty, not_a_number
from server.routing.table import Key, Target
from server.routing.workers import Workers, resident_bytes

MOST_RETIRED = 256
"""Counters kept of arms that are no longer in the table; a reply may still end in one."""

AT_ONCE = 32
"""Arms told in one go: a histogram takes some 20 µs to pack, and the loop waits for it."""

LOOKED_AT = 16
"""The outputs of one answer in so many are looked at."""

Row = list[Any]
"""Route, rollout, arm, model, version, whether it is of copies, in flight, deaths of workers, bytes
that the largest worker holds, and the counts in the form of `control.rollouts.arms.Arm.as_list`."""

Find = Callable[[str, int], Sequence[Instance]]
"""What runs a version of a model now; nothing where it is not loaded."""


def no_workers(_model: str, _version: int) -> Sequence[Instance]:
    """Where nothing is loaded."""
    return ()


class Window:
    """One arm's outcomes since the process began. The loop's thread adds. `deaths` and
    `resident_bytes`, of its workers, are only looked at while a rollout moves the route."""

    __slots__ = (
        "changed",
        "deaths",
        "empty",
        "errors",
        "in_flight",
        "latency",
        "not_a_number",
        "requests",
        "resident_bytes",
    )

    def __init__(self) -> None:
        self.requests = self.errors = self.not_a_number = self.empty = 0
        self.in_flight = self.deaths = self.resident_bytes = 0
        self.latency = Histogram()
        self.changed = False

    def refused(self) -> None:
        """It was not even accepted: the queue is full, or the version is not ready."""
        self.requests += 1
        self.errors += 1
        self.changed = True

    def follow(self, reply: Reply, arrived_ns: int) -> None:
        """Count how `reply` ends. `arrived_ns` is on `time.monotonic_ns`."""
        self.in_flight += 1
        reply.watch(partial(self.ended, arrived_ns))

    def ended(self, arrived_ns: int, reply: Reply) -> None:
        """A reply that was in flight. What the client got wrong or cancelled does not count."""
        self.in_flight -= 1
        self.changed = True
        error = reply.error
        if error is None:
            self.requests += 1
            self.latency.add((time.monotonic_ns() - arrived_ns) * 1e-9)
            if not self.requests % LOOKED_AT:
                self._look_at(reply.unread)
        elif not isinstance(error, Cancelled) and is_server_fault(error):
            self.refused()

    def _look_at(self, response: InferResponse | None) -> None:
        if response is None:
            return  # the reader of a stream has it already
        if empty(response.outputs):
            self.empty += 1
        elif not_a_number(response.outputs):
            self.not_a_number += 1

    def as_list(self) -> list[Any]:
        counts = [self.requests, self.errors, self.not_a_number, self.empty]
        return [*counts, self.latency.as_list()]


class Windows:
    """Every arm's. `boot` is new with every start of the process: its counts begin at nothing."""

    def __init__(self, find: Find = no_workers) -> None:
        self.boot = secrets.token_hex(8)
        self._find = find
        self._workers: dict[Key, Workers] = {}
        self._windows: dict[Key, Window] = {}
        self._current: frozenset[Key] = frozenset()

    def use(self, targets: Iterable[Target]) -> None:
        """These are in the table from now on."""
        current = [target.key for target in targets]
        for key in current:
            self._windows.setdefault(key, Window())
        self._current = frozenset(current)
        self._workers = {
            key: self._workers.get(key) or Workers(self._instances(key))
            for key in self._current
            if key[1]
        }
        retired = [key for key in self._windows if key not in self._current]
        for key in retired[: max(0, len(retired) - MOST_RETIRED)]:
            del self._windows[key]

    def of(self, target: Target) -> Window:
        found = self._windows.get(target.key)
        if found is None:  # picked from a table that was replaced long ago
            found = self._windows[target.key] = Window()
        return found

    def snapshot(self, everything: bool) -> Iterator[list[Row]]:
        """Counters that changed since they were last told, a few at a time; with `everything` also
        those in the table that have counted anything, or that a rollout waits for."""
        self._look_at_workers()
        due = [
            (key, one)
            for key, one in self._windows.items()
            if one.changed or (everything and key in self._current and (one.requests or key[1]))
        ]
        for start in range(0, len(due), AT_ONCE):
            rows = []
            for key, window in due[start : start + AT_ONCE]:
                window.changed = False
                workers = (window.deaths, window.resident_bytes)
                rows.append([*key, window.in_flight, *workers, window.as_list()])
            yield rows

    def _look_at_workers(self) -> None:
        for key, workers in self._workers.items():
            instances, window = self._instances(key), self._windows[key]
            died, window.resident_bytes = workers.died(instances), resident_bytes(instances)
            window.deaths += died
            window.changed = window.changed or died > 0

    def _instances(self, key: Key) -> Sequence[Instance]:
        _, _, _, model, version, _ = key
        return self._find(model, version)

    def rows(self) -> list[tuple[Key, Window]]:
        """Of the table's arms, for metrics."""
        return [(key, one) for key, one in self._windows.items() if key in self._current]


def is_server_fault(error: Exception) -> bool:
    """Whether the client could not have done better."""
    return isinstance(error, QueueFull) or status_of(error).http >= 500

"""The windows of all arms, and what is told of them to the control process."""

import secrets
from collections.abc import Callable, Iterable, Iterator, Sequence

from backends.seam import Instance
from control.gateways.messages import ArmReport
from server.routing.arm_counters import ArmCounters
from server.routing.table import Key, Target
from server.routing.worker_monitor import WorkerMonitor, resident_bytes

MOST_RETIRED = 256
"""Counters kept of arms that are no longer in the table; a reply may still end in one."""

AT_ONCE = 32
"""Arms told in one go: a histogram takes some 20 µs to pack, and the loop waits for it."""

Find = Callable[[str, int], Sequence[Instance]]
"""What runs a version of a model now; nothing where it is not loaded."""


def no_workers(_model: str, _version: int) -> Sequence[Instance]:
    """Where nothing is loaded."""
    return ()


class ArmCountersRegistry:
    """Every arm's. `boot` is new with every start of the process: its counts begin at nothing."""

    def __init__(self, find: Find = no_workers) -> None:
        self.boot = secrets.token_hex(8)
        self._find = find
        self._workers: dict[Key, WorkerMonitor] = {}
        self._windows: dict[Key, ArmCounters] = {}
        self._current: frozenset[Key] = frozenset()

    def use(self, targets: Iterable[Target]) -> None:
        """These are in the table from now on."""
        current = [target.key for target in targets]
        for key in current:
            self.at(key)
        self._current = frozenset(current)
        self._workers = {
            key: self._workers.get(key) or WorkerMonitor(self._instances(key))
            for key in self._current
            if key[1]
        }
        retired = [key for key in self._windows if key not in self._current]
        for key in retired[: max(0, len(retired) - MOST_RETIRED)]:
            del self._windows[key]

    def at(self, key: Key) -> ArmCounters:
        """The arm's, which goes on where it was when its route changes."""
        found = self._windows.get(key)
        if found is None:
            found = self._windows[key] = ArmCounters()
        return found

    def of(self, target: Target) -> ArmCounters:
        """Where to count what a target does that was picked from a table replaced long ago: its own
        window may have been dropped meanwhile."""
        return self.at(target.key)

    def snapshot(self, everything: bool) -> Iterator[tuple[ArmReport, ...]]:
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
                window.tell()
                workers = (window.deaths, window.resident_bytes)
                rows.append(ArmReport(*key, window.in_flight, *workers, window.totals()))
            yield tuple(rows)

    def _look_at_workers(self) -> None:
        for key, workers in self._workers.items():
            instances, window = self._instances(key), self._windows[key]
            died, window.resident_bytes = workers.died(instances), resident_bytes(instances)
            window.deaths += died

    def _instances(self, key: Key) -> Sequence[Instance]:
        _, _, _, model, version, _ = key
        return self._find(model, version)

    def rows(self) -> list[tuple[Key, ArmCounters]]:
        """Of the table's arms, for metrics."""
        return [(key, one) for key, one in self._windows.items() if key in self._current]

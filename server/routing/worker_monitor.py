"""What is seen of the workers of a version that a rollout moves: their deaths, what they hold.

A model without a process of its own has no worker: it cannot die alone, and what it holds cannot be
told from what the gateway holds.
"""

import os
from collections.abc import Iterable
from pathlib import Path

from backends.seam import Instance

_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class WorkerMonitor:
    """One version's, from the moment this is made. On the loop's thread."""

    __slots__ = ("_deaths",)

    def __init__(self, instances: Iterable[Instance]) -> None:
        self._deaths = {one: deaths_of(one) for one in instances}

    def died(self, instances: Iterable[Instance]) -> int:
        """How often since it was last asked; `instances` are those there are now."""
        now = {one: deaths_of(one) for one in instances}
        more = sum(deaths - self._deaths.get(one, 0) for one, deaths in now.items())
        self._deaths = now
        return more


def deaths_of(instance: Instance) -> int:
    """Of workers that were ready; 0 for an instance that has none."""
    return int(getattr(instance, "deaths", 0))


def resident_bytes(instances: Iterable[Instance]) -> int:
    """Of the largest worker; 0 where there is none."""
    pids = (getattr(one, "pid", None) for one in instances)
    return max((resident_of(pid) for pid in pids if pid), default=0)


def resident_of(pid: int) -> int:
    """Of a process; 0 when it has ended."""
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE_BYTES
    except (OSError, IndexError, ValueError):
        return 0

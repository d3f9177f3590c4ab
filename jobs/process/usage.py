"""What a job's process takes with all it has started; Linux."""

import os
from collections.abc import Iterator
from contextlib import suppress
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from backends.process.health.memory_usage import (
    own_bytes_of,
    process_tree,
    shared_out_bytes_of,
)

_TICKS = os.sysconf("SC_CLK_TCK")
_STATE, _GROUP, _USER_TICKS = 0, 2, 11
"""In /proc/PID/stat behind the command: the state, pgrp, and utime, whom stime, cutime and cstime
follow."""


_ENDED = ("Z", "X")


class JobUsage(NamedTuple):
    """`cpu_secs`: of the living, and of those that they have waited for."""

    processes: int = 0
    cpu_secs: float = 0.0
    memory_bytes: int = 0


def members(leader: int, most: int) -> set[int]:
    """The processes of a job, `most` at most: below its first one, or in its group. Those whose
    parent has ended are looked for among our own children, whom the kernel gives them to where we
    asked. Costs no more than that many processes do, however fast they multiply."""
    return set(islice(_members(leader), most))


def _members(leader: int) -> Iterator[int]:
    found = set()
    for pid in process_tree(leader):
        if pid not in found:
            found.add(pid)
            yield pid
    own = os.getpid()
    with suppress(OSError):
        children = Path(f"/proc/{own}/task/{own}/children").read_text().split()
        for pid in map(int, children):
            if pid not in found and _group(pid) == leader:
                found.add(pid)
                yield from process_tree(pid)


def is_group_alive(leader: int) -> bool:
    """Whether a process of the group runs yet, whatever its parent is."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = _stat(int(name))
            if fields and int(fields[_GROUP]) == leader and fields[_STATE] not in _ENDED:
                return True
    return False


def usage_of(pids: set[int], memory_limit_bytes: int) -> JobUsage:
    """What these take now; shared pages by share only where that decides about the limit."""
    memory = own_bytes_of(pids)
    if memory > memory_limit_bytes:
        memory = shared_out_bytes_of(pids)
    return JobUsage(len(pids), sum(map(_cpu_secs, pids)), memory)


def unlinked_bytes(pids: set[int]) -> int:
    """Of files that have no name any more and are still open."""
    return sum(map(_unlinked_bytes, pids))


def _unlinked_bytes(pid: int) -> int:
    total = 0
    try:
        descriptors = list(os.scandir(f"/proc/{pid}/fd"))
    except OSError:
        return 0
    for entry in descriptors:
        with suppress(OSError):
            found = os.stat(entry.path)
            total += found.st_blocks * 512 if found.st_nlink == 0 else 0
    return total


def _group(pid: int) -> int:
    fields = _stat(pid)
    return int(fields[_GROUP]) if fields else -1


def _cpu_secs(pid: int) -> float:
    fields = _stat(pid)
    return sum(map(int, fields[_USER_TICKS : _USER_TICKS + 4])) / _TICKS if fields else 0.0


def _stat(pid: int) -> list[str]:
    """The fields behind the command; [] for one that has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []

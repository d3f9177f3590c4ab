"""What a job's process takes with all it has started; Linux."""

import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from backends.process.health.memory_usage import (
    own_bytes_of,
    shared_out_bytes_of,
)

_TICKS = os.sysconf("SC_CLK_TCK")
_STATE, GROUP, SESSION, _USER_TICKS, _THREADS = 0, 2, 3, 11, 17
"""In /proc/PID/stat behind the command: the state, pgrp, session, utime, whom stime, cutime and
cstime follow, and num_threads."""


_ENDED = ("Z", "X")
_BLOCK_BYTES = 512
_OF_MEMORY = ("/memfd:", "/dev/shm/", "/dev/zero")
_ANONYMOUS, _DELETED = b"/dev/zero", b" (deleted)"
"""Memory that processes share shows as the first."""


class JobUsage(NamedTuple):
    """`cpu_secs`: of the living, and of those that they have waited for."""

    threads: int = 0
    cpu_secs: float = 0.0
    memory_bytes: int = 0


def is_group_alive(leader: int) -> bool:
    """Whether a process of the group runs yet, whatever its parent is."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            fields = stat_of(int(name))
            if fields and int(fields[GROUP]) == leader and fields[_STATE] not in _ENDED:
                return True
    return False


def usage_of(pids: set[int], memory_limit_bytes: int) -> JobUsage:
    """What these take now; shared pages by share only where that decides about the limit."""
    memory = own_bytes_of(pids)
    if memory > memory_limit_bytes:
        memory = shared_out_bytes_of(pids)
    return JobUsage(sum(map(_threads, pids)), sum(map(_cpu_secs, pids)), memory)


class UnlinkedBytes(NamedTuple):
    """Of files without a name that processes have open or mapped: on a disk, and in memory, such as
    those of memfd_create, whose pages count to no process that does not touch them."""

    disk: int = 0
    memory: int = 0


def unlinked_bytes(pids: set[int]) -> UnlinkedBytes:
    """Each file once. Of one that is mapped and not open any more, only what is mapped is known
    where this process may not look at others' mappings (CAP_CHECKPOINT_RESTORE)."""
    found: dict[tuple[bool, int], int] = {}
    for pid in pids:
        for is_memory, inode, size in (*_open_unlinked(pid), *_mapped_unlinked(pid)):
            key = (is_memory, inode)
            found[key] = max(found.get(key, 0), size)
    memory = sum(size for (is_memory, _), size in found.items() if is_memory)
    return UnlinkedBytes(sum(found.values()) - memory, memory)


def _open_unlinked(pid: int) -> Iterator[tuple[bool, int, int]]:
    """Whether it is memory, the inode, and the bytes."""
    with suppress(OSError), os.scandir(f"/proc/{pid}/fd") as descriptors:
        for entry in descriptors:
            with suppress(OSError):
                file = os.stat(entry.path)
                if file.st_nlink == 0:
                    is_memory = os.readlink(entry.path).startswith(_OF_MEMORY)
                    yield is_memory, file.st_ino, file.st_blocks * _BLOCK_BYTES


def _mapped_unlinked(pid: int) -> Iterator[tuple[bool, int, int]]:
    """The same of what is mapped."""
    with suppress(OSError):
        lines = Path(f"/proc/{pid}/maps").read_bytes().splitlines()
        for line in lines:
            if line.endswith(_DELETED):
                place, _, offset, _, inode, path = line.split(None, 5)
                begin, end = (int(one, 16) for one in place.split(b"-"))
                is_memory = path.startswith(tuple(map(os.fsencode, _OF_MEMORY)))
                # of memory that processes share, more may be reserved than is used
                is_anonymous = path.startswith(_ANONYMOUS)
                size = 0 if is_anonymous else int(offset, 16) + end - begin
                with suppress(OSError):
                    exact = os.stat(f"/proc/{pid}/map_files/{begin:x}-{end:x}")
                    size = exact.st_blocks * _BLOCK_BYTES
                yield is_memory, int(inode), size


def _cpu_secs(pid: int) -> float:
    fields = stat_of(pid)
    return sum(map(int, fields[_USER_TICKS : _USER_TICKS + 4])) / _TICKS if fields else 0.0


def _threads(pid: int) -> int:
    fields = stat_of(pid)
    return int(fields[_THREADS]) if fields else 0


def stat_of(pid: int) -> list[str]:
    """The fields behind the command; [] for one that has gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return []

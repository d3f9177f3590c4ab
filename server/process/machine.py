"""What this machine gives the process: the cores it may use, and the memory."""

import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_MEMBERSHIP = Path("/proc/self/cgroup")
_MEMINFO = Path("/proc/meminfo")


def usable_cores(cgroups: Path = _CGROUPS, membership: Path = _MEMBERSHIP) -> int:
    """Cores this process may use: its CPU affinity, cut to its cgroup's quota; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    quotas = [int(quota) for quota in _quotas(cgroups, membership)]
    return max(1, min([allowed, *quotas]))


def usable_memory(
    cgroups: Path = _CGROUPS, membership: Path = _MEMBERSHIP, meminfo: Path = _MEMINFO
) -> int:
    """Bytes of memory this process may use: the machine's, cut to its cgroup's limit; 0 where
    neither is known."""
    lines = _read(meminfo).splitlines()
    totals = [int(line.split()[1]) * 1024 for line in lines if line.startswith("MemTotal:")]
    return min([*totals, *_memory_limits(cgroups, membership)], default=0)


def _quotas(cgroups: Path, membership: Path) -> Iterator[float]:
    """Every CPU quota above this process, in cores (cgroup v2 `cpu.max`, v1 `cfs_quota`)."""
    for version, folder in _groups(cgroups, membership, "cpu"):
        yield from _quota_v2(folder) if version == 2 else _quota_v1(folder)


def _memory_limits(cgroups: Path, membership: Path) -> Iterator[int]:
    """Every memory limit above this process (cgroup v2 `memory.max`, v1 `limit_in_bytes`)."""
    for version, folder in _groups(cgroups, membership, "memory"):
        name = "memory.max" if version == 2 else "memory.limit_in_bytes"
        text = _read(folder / name).strip()
        if text.isdigit():
            yield int(text)


def _groups(cgroups: Path, membership: Path, controller: str) -> Iterator[tuple[int, Path]]:
    """This process's cgroups that may bound `controller`, up to the root; the version of each."""
    for line in _read(membership).splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            root, version = cgroups, 2
        elif controller in controllers.split(","):
            root, version = cgroups / controller, 1
        else:
            continue
        folder = root / group.strip("/")
        for level in (folder, *folder.parents):
            if level.is_relative_to(root):
                yield version, level


def _quota_v2(folder: Path) -> Iterator[float]:
    quota, _, period = _read(folder / "cpu.max").strip().partition(" ")
    if quota.isdigit() and period.isdigit():
        yield int(quota) / int(period)


def _quota_v1(folder: Path) -> Iterator[float]:
    quota = _read(folder / "cpu.cfs_quota_us").strip()
    period = _read(folder / "cpu.cfs_period_us").strip()
    if quota.isdigit() and period.isdigit():
        yield int(quota) / int(period)


def _read(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""

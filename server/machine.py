"""What this machine gives the process: the cores it may use."""

import os
from collections.abc import Iterator
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")


def usable_cores(cgroups: Path = _CGROUPS, membership: Path = Path("/proc/self/cgroup")) -> int:
    """Cores this process may use: its CPU affinity, cut to its cgroup's quota; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        allowed = len(os.sched_getaffinity(0))
    else:
        allowed = os.cpu_count() or 1
    quotas = [int(quota) for quota in _quotas(cgroups, membership)]
    return max(1, min([allowed, *quotas]))


def _quotas(cgroups: Path, membership: Path) -> Iterator[float]:
    """Every CPU quota above this process, in cores (cgroup v2 `cpu.max`, v1 `cfs_quota`)."""
    for line in _read(membership).splitlines():
        _, controllers, group = line.split(":", 2)
        if not controllers:
            root, read = cgroups, _quota_v2
        elif "cpu" in controllers.split(","):
            root, read = cgroups / "cpu", _quota_v1
        else:
            continue
        folder = root / group.strip("/")
        for level in (folder, *folder.parents):
            if level.is_relative_to(root):
                yield from read(level)


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

"""What the server's processes hold, read from /proc."""

import os
from collections import Counter
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from benchmarks.faults.server import Server
from benchmarks.soak.rows import Sample, Weight


def sample(server: Server, at: float) -> Sample:
    """One moment; a process that ends meanwhile is left out."""
    weights = []
    for pid, role in server.roles().items():
        with suppress(OSError, StopIteration):
            weights.append(_weight(pid, role or "other"))
    shared = _shared(one.pid for one in weights)
    return Sample(
        round(at, 1), tuple(weights), len(shared), sum(shared.values()),
        _kib(server.state.rglob("*")),
    )  # fmt: skip


def states(server: Server) -> dict[str, str]:
    """Role and pid → how many of its threads run, sleep, wait for a disk: "R2 S30"."""
    found = {}
    for pid, role in server.roles().items():
        with suppress(OSError):
            tasks = Path(f"/proc/{pid}/task").iterdir()
            letters = Counter(_stat(task)[0] for task in tasks)
            found[f"{role or 'other'} {pid}"] = " ".join(
                f"{letter}{count}" for letter, count in sorted(letters.items())
            )
    return found


def pressure() -> str:
    """The machine's load, and how much of the last ten seconds somebody waited for a core."""
    load = " ".join(f"{one:.1f}" for one in os.getloadavg())
    with suppress(OSError):
        return f"{load}; cpu {Path('/proc/pressure/cpu').read_text().split()[1]}"
    return load


def _weight(pid: int, role: str) -> Weight:
    folder = Path(f"/proc/{pid}")
    rollup = {
        line.split(":")[0]: int(line.split()[1])
        for line in (folder / "smaps_rollup").read_text().splitlines()[1:]
    }
    fields = _stat(folder)
    ticks = int(fields[11]) + int(fields[12])
    return Weight(
        pid, role, rollup["Pss"], rollup["Rss"], len(os.listdir(folder / "fd")), int(fields[17]),
        ticks / os.sysconf("SC_CLK_TCK"),
    )  # fmt: skip


def _shared(pids: Iterable[int]) -> dict[int, int]:
    """Inode → KiB of every memfd and every file of /dev/shm that these processes have open."""
    found = {}
    for pid in pids:
        with suppress(OSError):
            for one in Path(f"/proc/{pid}/fd").iterdir():
                with suppress(OSError):
                    if os.readlink(one).startswith(("/memfd:", "/dev/shm/")):
                        status = one.stat()
                        found[status.st_ino] = status.st_blocks // 2
    return found


def _stat(folder: Path) -> list[str]:
    """The fields from the state on."""
    return (folder / "stat").read_text().rpartition(")")[2].split()


def _kib(files: Iterable[Path]) -> int:
    total = 0
    for one in files:
        with suppress(OSError):
            total += one.stat().st_blocks
    return total // 2

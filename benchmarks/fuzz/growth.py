"""Whether a process grows: its resident bytes every so many inputs, in a file."""

import os
from collections.abc import Sequence
from pathlib import Path
from statistics import median

EVERY = 500
_PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")


class Growth:
    """Appends "inputs resident-bytes" to a file, every EVERY inputs."""

    def __init__(self, file: Path) -> None:
        self._count = 0
        self._file = file.open("a")
        self._file.write("start\n")

    def one(self) -> None:
        """Another input has been taken."""
        self._count += 1
        if self._count % EVERY == 0:
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * _PAGE_BYTES
            self._file.write(f"{self._count} {resident}\n")
            self._file.flush()

    def close(self) -> None:
        self._file.close()


def grown(sizes: Sequence[int]) -> int:
    """Bytes between the medians of the third and the last quarter of one process's sizes.

    The first half is warming up: caches, pools, and the corpus that libFuzzer keeps. 0 for fewer
    than eight sizes, and for what shrinks.
    """
    if len(sizes) < 8:
        return 0
    quarter = len(sizes) // 4
    return max(0, int(median(sizes[-quarter:]) - median(sizes[2 * quarter : 3 * quarter])))


def read(file: Path) -> list[list[int]]:
    """The sizes of each process that wrote to the file."""
    if not file.exists():
        return []
    runs: list[list[int]] = []
    for line in file.read_text().splitlines():
        if line == "start":
            runs.append([])
        elif runs:
            runs[-1].append(int(line.split()[1]))
    return runs

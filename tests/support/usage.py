"""What a test server's process holds, read from /proc and from its metrics."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from statistics import median

from support.server import Server


def status_of(server: Server, row: str) -> str:
    text = Path(f"/proc/{server.pid}/status").read_text()
    return dict(line.split(":", 1) for line in text.splitlines())[row].strip()


def resident_bytes(server: Server) -> int:
    return int(status_of(server, "VmRSS").split()[0]) * 1024


def keeps_its_size(sizes: Sequence[int]) -> bool:
    """Of memory in bytes, looked at again and again. Now and then an allocator takes some megabytes
    at once; what is leaked grows all the time."""
    grown = median(after - before for before, after in pairwise(sizes))
    return grown <= 0.005 * sizes[0] and sizes[-1] - sizes[0] <= 16 * 2**20


def threads(server: Server) -> int:
    return int(status_of(server, "Threads"))


def metric(server: Server, name: str) -> float:
    """The sum of a metric's series over all models and versions."""
    text = server.get("/metrics", server.metrics_port)[1].decode()
    return sum(
        float(line.rpartition(" ")[2])
        for line in text.splitlines()
        if line.startswith((f"{name}{{", f"{name} "))
    )

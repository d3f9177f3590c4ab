"""What a server costs that nobody asks anything: CPU of each of its processes, wake-ups and bytes
written, with the examples and with 200 small models."""

import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from benchmarks.peers import modelyard
from benchmarks.process import family
from benchmarks.report import Figure, Report
from benchmarks.rounds import Plan

NAME = "idle"
REPOSITORIES = {"examples": "the examples", "many": "201 models"}
SETTLE_S, IDLE_S = 60.0, 60.0
QUICK_S = 15.0
"""Both, where there is one round."""

LIMIT_PERCENT, WORKER_LIMIT_PERCENT = 0.2, 0.01
_ROLES = {"modelyard control": "control process", "modelyard worker": "workers"}
_SCHEDULED_CPU = 2  # of Linux's clock ids: the exact CPU time of a process


class ProcessUse(NamedTuple):
    """Of one process so far."""

    cpu_ns: int
    wakeups: int
    written_bytes: int


def cpu_figure(role: str, repository: str) -> str:
    """The name of a figure."""
    return f"idle with {REPOSITORIES[repository]}: CPU of the {role}"


def written_figure(repository: str) -> str:
    return f"idle with {REPOSITORIES[repository]}: written to disk"


def measure(plan: Plan, report: Report) -> None:
    """One start of each; a figure for each kind of process."""
    if "modelyard" in plan.without:
        return
    settle_s, idle_s = (QUICK_S, QUICK_S) if plan.rounds == 1 else (SETTLE_S, IDLE_S)
    for repository in REPOSITORIES:
        with modelyard.settled(plan.cache / "models" / repository, plan.cache, None) as peer:
            time.sleep(settle_s)
            report.figures += _figures(peer.process.pid, repository, idle_s)


def _figures(gateway: int, repository: str, idle_s: float) -> Iterator[Figure]:
    before = _uses(gateway)
    time.sleep(idle_s)
    after = _uses(gateway)
    cpu_ns: Counter[str] = Counter({"gateway": 0, "control process": 0, "workers": 0})
    wakeups, written = 0, 0
    for pid in before.keys() & after.keys():
        then, now = before[pid], after[pid]
        cpu_ns["gateway" if pid == gateway else _role(pid)] += now.cpu_ns - then.cpu_ns
        wakeups += max(0, now.wakeups - then.wakeups)
        written += now.written_bytes - then.written_bytes
    for role, used_ns in cpu_ns.items():
        yield Figure(cpu_figure(role, repository), used_ns / idle_s / 1e7, "% of a core")
    where = REPOSITORIES[repository]
    yield Figure(f"idle with {where}: wake-ups of all threads", wakeups / idle_s, "a second")
    yield Figure(written_figure(repository), written / 1e3, f"KB in {idle_s:g} s")


def _uses(gateway: int) -> dict[int, ProcessUse]:
    found = {}
    for pid in family(gateway):
        with suppress(OSError):  # it has ended
            found[pid] = ProcessUse(_cpu_ns(pid), _wakeups(pid), _written_bytes(pid))
    return found


def _cpu_ns(pid: int) -> int:
    """Of all its threads, ended ones too. Raises OSError."""
    return time.clock_gettime_ns((~pid << 3) | _SCHEDULED_CPU)


def _wakeups(pid: int) -> int:
    total = 0
    for task in Path(f"/proc/{pid}/task").iterdir():
        with suppress(OSError):  # the thread has ended
            lines = (task / "status").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("voluntary"))
    return total


def _written_bytes(pid: int) -> int:
    """That the file system was made to write, now or later."""
    facts = dict(line.split(": ") for line in Path(f"/proc/{pid}/io").read_text().splitlines())
    return int(facts["write_bytes"])


def _role(pid: int) -> str:
    command = Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode()
    return next((role for name, role in _ROLES.items() if name in command), "other processes")

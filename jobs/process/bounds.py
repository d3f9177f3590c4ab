"""What holds for a job's process before anything else happens in it.

Runs in the tool's environment, so it needs nothing but the standard library.
"""

import json
import os
import resource
from contextlib import suppress

from jobs.process.mark import set_mark
from repository.process.parent import die_with

SPARE_BYTES = 1 << 30
"""Of address space that libraries reserve and never touch, such as stacks of threads."""

SPARE_TASKS = 1024
"""Threads and processes that a user may have beside those at a job's start: the last resort against
one that forks without end, behind the count of its processes."""

CPU_GRACE_SECS = 5


def bound(parent_pid: int, limits: str) -> None:
    """Be killed when the thread that started this process ends; take no more than `limits`, a JSON
    object of memory_bytes, cpu_secs, file_bytes and niceness; be the first to go where the machine
    runs out of memory; carry the job's mark. What this process starts inherits all but the first.
    """
    die_with(parent_pid)
    set_mark(os.getpid())
    given = json.loads(limits)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    os.nice(int(given["niceness"]))
    _lower(resource.RLIMIT_DATA, given["memory_bytes"] + SPARE_BYTES)
    _lower(resource.RLIMIT_FSIZE, given["file_bytes"])
    if os.geteuid() != 0:  # the kernel does not count those of root
        _lower(resource.RLIMIT_NPROC, _tasks_of_user() + SPARE_TASKS)
    cpu_secs = max(1, int(given["cpu_secs"]))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_secs, cpu_secs + CPU_GRACE_SECS))


def _tasks_of_user() -> int:
    """Threads of all processes of this user, which is what the limit is compared with."""
    total = 0
    for name in os.listdir("/proc"):
        with suppress(OSError):
            if name.isdigit() and os.stat(f"/proc/{name}").st_uid == os.geteuid():
                total += len(os.listdir(f"/proc/{name}/task"))
    return total


def _lower(limit: int, most: int) -> None:
    _, hard = resource.getrlimit(limit)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(limit, (most, most))

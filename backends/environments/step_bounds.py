"""What holds for each step of a build before anything else happens in it."""

import resource
from contextlib import suppress

from repository.process.parent import die_with

MEMORY_BYTES = 1 << 30
"""Of private memory, for each process of a step: headers of an archive take what they like."""


def bound(parent_pid: int) -> None:
    """Be killed when the thread that started this process ends; take no more than MEMORY_BYTES; and
    be the first to go where memory runs out nevertheless. What this process starts inherits the
    last two."""
    die_with(parent_pid)
    with suppress(OSError), open("/proc/self/oom_score_adj", "w") as file:
        file.write("1000")
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    most = MEMORY_BYTES if hard == resource.RLIM_INFINITY else min(MEMORY_BYTES, hard)
    resource.setrlimit(resource.RLIMIT_DATA, (most, most))

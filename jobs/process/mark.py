"""The mark of a job: a number that all its processes carry, whatever they drop and leave.

It is the kernel's limit of file locks, which Linux keeps and has not looked at since 2.4: children
inherit it, and none can raise it; one that lowers it may carry another job's number. Needs the
standard library alone.
"""

import resource
from contextlib import suppress
from pathlib import Path

_LOCKS = 10
"""RLIMIT_LOCKS of Linux, which the module `resource` does not name."""
_LINE, _HARD_FIELD = "Max file locks", 4


def set_mark(number: int) -> None:
    """Mark this process and all that it starts from now on. Does nothing where the limit is lower
    already, as systemd's LimitLOCKS makes it: other signs of a job remain."""
    with suppress(ValueError, OSError):
        resource.setrlimit(_LOCKS, (number, number))


def mark_of(pid: int) -> int:
    """The mark of a process; 0 for one without, and for one that has gone."""
    try:
        lines = Path(f"/proc/{pid}/limits").read_text().splitlines()
    except OSError:
        return 0
    hard = next((one.split()[_HARD_FIELD] for one in lines if one.startswith(_LINE)), "")
    return int(hard) if hard.isdigit() else 0

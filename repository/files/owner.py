"""Names for what a process has not finished yet, so that a later one can tell that it is dead.

A token holds the process id, the time it started (a pid may be used again) and the boot.
"""

import os
import re
from functools import cache
from pathlib import Path

_PROC = Path("/proc")
_TOKEN = re.compile(r"([0-9]{1,10})\.([0-9]{1,20})\.([0-9a-f]{32})")


def token() -> str:
    """The token of this process: letters, digits and dots, fit for a file name."""
    return _token(os.getpid())


def token_of(pid: int) -> str:
    """The token of another process; one that nothing has where it has gone."""
    return f"{pid}.{_started(pid)}.{_boot()}"


def pid_of(token: str) -> int | None:
    """The number of the process with this token, alive or ended; None where it is another one's by
    now. It is nobody else's while a process of its session lives."""
    match = _TOKEN.fullmatch(token)
    if match is None or match[3] != _boot():
        return None
    pid = int(match[1])
    return pid if _started(pid) in ("", match[2]) else None


def alive(token: str) -> bool:
    """Whether the process that made `token` still runs, as far as this machine can see.

    A process of another container may be alive and not be seen; who removes its files should try
    their lock as well (`repository.files.durable.unlocked`).
    """
    match = _TOKEN.fullmatch(token)
    if match is None or match[3] != _boot():
        return False
    return _started(int(match[1])) == match[2]


@cache
def _token(pid: int) -> str:
    return token_of(pid)


def _started(pid: int) -> str:
    """Clock ticks between the boot and the start of `pid`; empty when there is none."""
    try:
        line = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except OSError:
        return ""
    # The command's name comes second, in brackets, and may itself hold blanks and brackets.
    return line.rpartition(")")[2].split()[19]


@cache
def _boot() -> str:
    return (_PROC / "sys/kernel/random/boot_id").read_text().strip().replace("-", "")

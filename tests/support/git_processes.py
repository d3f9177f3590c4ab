"""Processes of git that are left, and waiting for the last one to go."""

import contextlib
import os
import time
from collections.abc import Callable
from pathlib import Path

from support.git_http import (
    DEADLINE_SECS,
)


def eventually(holds: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + DEADLINE_SECS
    while not holds():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def processes_on(path: Path) -> list[str]:
    """Every process that names this folder in its command or stands in it."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(path) in line or os.readlink(process / "cwd") == str(path):
                found.append(line)
    return found

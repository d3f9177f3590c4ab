"""Processes that workers started and that outlive them: none may stay behind.

The kernel hands a process whose parent has ended to the next one above that asked for such; a
worker asks for those of its own, the server for what is left when a worker has ended.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from repository.sandbox.peer import is_of_worker

_PR_SET_CHILD_SUBREAPER = 36
_MOST_ROUNDS = 100
_ROUND_SECS = 0.002

_ends_them = False


def adopt() -> None:
    """From here on orphans below this process become its children."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def adopt_and_end() -> None:
    """The same for a server, in which `end` then ends those that are confined as workers are. The
    main thread must start no workers: theirs is what it has among its children and did not start.
    """
    global _ends_them
    adopt()
    _ends_them = True


def end() -> None:
    """Kill and reap what workers have left, with all that it starts meanwhile; takes microseconds
    where there is nothing, and 0.2 s at most. No-op but in a server that adopts."""
    if not _ends_them:
        return
    for _ in range(_MOST_ROUNDS):
        found = list(_left())
        if not found:
            return
        for pid in found:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        for pid in found:
            with suppress(ChildProcessError):
                os.waitpid(pid, os.WNOHANG)
        time.sleep(_ROUND_SECS)  # its own children are ours once it has ended


def _left() -> Iterator[int]:
    """Orphans become children of the main thread."""
    own = os.getpid()
    try:
        children = Path(f"/proc/{own}/task/{own}/children").read_text()
    except OSError:
        return
    yield from (pid for pid in map(int, children.split()) if is_of_worker(pid))

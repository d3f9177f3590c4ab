"""What workers have left that were killed: processes of their jobs, and scratch folders.

A job's process ends with its worker; what that process has started may not. All of it carries the
mark of the process that is named in the attempt's folder, is in its session, or has the folder in
its environment. The folder's worker holds a lock while it lives.
"""

import logging
import os
import signal
from contextlib import suppress
from pathlib import Path

from jobs.process.mark import mark_of
from jobs.process.program import LEADER
from repository.files.durable import unlocked
from repository.files.owner import pid_of
from repository.sandbox.scratch import ScratchFolders

_log = logging.getLogger(__name__)


def clear(shelf: Path, scratch: ScratchFolders) -> int:
    """End such processes and remove such folders below `shelf`; how many folders there were."""
    if not shelf.is_dir():
        return 0
    abandoned = [one for one in shelf.iterdir() if one.is_dir() and unlocked(one)]
    for folder in abandoned:
        for pid in _processes_in(folder.resolve()):
            _log.warning("process %d of a job whose worker was killed is ended", pid)
            with suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)
    scratch.sweep()
    if abandoned:
        _log.info("%d scratch folders of workers that were killed are removed", len(abandoned))
    return len(abandoned)


def _processes_in(folder: Path) -> list[int]:
    leaders = {pid_of(_text(path)) for path in folder.glob(f"*/{LEADER}")}
    mark = os.fsencode(f"{folder}/")
    found = []
    for name in os.listdir("/proc") if os.path.isdir("/proc") else []:
        if name.isdigit() and int(name) != os.getpid():
            with suppress(OSError):
                is_marked = mark in Path(f"/proc/{name}/environ").read_bytes()
                if is_marked or not leaders.isdisjoint({os.getsid(int(name)), mark_of(int(name))}):
                    found.append(int(name))
    return found


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""

"""Files and folders that this user alone may read: made so, and found ones made so.

Symlinks are never followed: what they lead to is not ours to change.
"""

import os
import stat
from collections.abc import Iterator
from pathlib import Path

from repository.tree import walk

OTHERS = 0o077
"""The permissions of the group and of everybody else."""


def opener(path: str, flags: int) -> int:
    """For `open(..., opener=opener)`: a file that is created is readable by this user alone."""
    return os.open(path, flags | os.O_CLOEXEC, 0o600)


def write(path: Path, content: bytes) -> None:
    """`path.write_bytes`, for this user alone. Raises OSError."""
    with open(path, "wb", opener=opener) as file:
        file.write(content)


def make_folder(path: Path) -> None:
    """Make a folder, and those above it, for this user alone; one that is there stays as it is."""
    missing = [one for one in (path, *path.parents) if not one.exists()]
    for one in reversed(missing):
        one.mkdir(mode=0o700, exist_ok=True)


def tighten(path: Path) -> bool:
    """Take every permission of others from a file or folder of ours.

    True when there was one. False too for what is a symlink or not there. Raises PermissionError
    for somebody else's.
    """
    try:
        info = os.lstat(path)
    except FileNotFoundError:
        return False
    if stat.S_ISLNK(info.st_mode) or not info.st_mode & OTHERS:
        return False
    try:
        os.chmod(path, stat.S_IMODE(info.st_mode) & ~OTHERS)
    except FileNotFoundError:
        return False  # a temporary file that has gone meanwhile
    return True


def tighten_tree(top: Path) -> list[str]:
    """`tighten` everything below `top`, and `top`; the paths that are somebody else's.

    Folders come before what they hold, so that a closed front end is closed first.
    """
    foreign = []
    for path in _all_below(top):
        try:
            tighten(path)
        except PermissionError:
            foreign.append(str(path))
    return foreign


def _all_below(top: Path) -> Iterator[Path]:
    yield top
    if top.is_symlink() or not top.is_dir():
        return
    for entry in walk(top):
        yield Path(entry.path)

"""Whole trees of folders, as others left them: walked, measured and removed without recursion.

A program may nest folders deeper than Python's stack and than the longest path, and take its own
permissions away. Links are never followed.
"""

import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from typing import NamedTuple

_BLOCK_BYTES = 512
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class FolderEntry(NamedTuple):
    """Something below the top of a tree: `depth` is 1 for what lies in the top itself; `info` is
    lstat's."""

    path: str
    depth: int
    info: os.stat_result

    @property
    def is_folder(self) -> bool:
        return stat.S_ISDIR(self.info.st_mode)


class TreeSize(NamedTuple):
    """`disk_bytes`: of files, as the disk holds them, so that holes count nothing. `entries`: files
    and folders. `depth`: of the deepest. `unread`: a folder that cannot be listed, "" for none."""

    disk_bytes: int = 0
    entries: int = 0
    depth: int = 0
    unread: str = ""


def walk(top: Path, failed: Callable[[OSError], None] | None = None) -> Iterator[FolderEntry]:
    """Everything below `top`, folders before what they hold. What has gone meanwhile is left out;
    `failed` is told of other errors."""
    pending = [(os.fspath(top), 1)]
    while pending:
        folder, depth = pending.pop()
        try:
            with os.scandir(folder) as entries:
                for entry in entries:
                    try:
                        found = FolderEntry(entry.path, depth, entry.stat(follow_symlinks=False))
                    except FileNotFoundError:
                        continue
                    yield found
                    if found.is_folder:
                        pending.append((found.path, depth + 1))
        except FileNotFoundError:
            continue
        except OSError as error:
            if failed is not None:
                failed(error)


def size_of(top: Path, most_entries: int | None = None, most_depth: int | None = None) -> TreeSize:
    """What a tree takes. It stops counting with the first entry beyond a bound, which the answer
    then has."""
    unread: list[str] = []
    size = TreeSize()
    for entry in walk(top, lambda error: unread.append(str(error.filename))):
        is_file = not entry.is_folder
        size = TreeSize(
            size.disk_bytes + (entry.info.st_blocks * _BLOCK_BYTES if is_file else 0),
            size.entries + 1,
            max(size.depth, entry.depth),
        )
        is_beyond = most_entries is not None and size.entries > most_entries
        if is_beyond or (most_depth is not None and size.depth > most_depth):
            break
    return size._replace(unread=unread[0]) if unread else size


def remove(top: Path) -> None:
    """Remove a folder with everything in it, however deep, and without permissions; gone is fine.

    Raises the first OSError, once all that can be removed is; of a link as well.
    """
    try:
        descriptor = _opened(os.fspath(top), None)
    except FileNotFoundError:
        return
    try:
        removal = _Removal(descriptor)
        removal.run()
    finally:
        os.close(descriptor)
    if removal.error is not None:
        raise removal.error
    with suppress(FileNotFoundError):
        os.rmdir(top)


class _Removal:
    """Empties the folder `top`: files are removed where they are, and folders in folders moved to
    the top first, so that no path gets long."""

    def __init__(self, top: int) -> None:
        self._top = top
        self._kept: set[str] = set()
        self._fresh = (f".{secrets.token_hex(8)}.{number}" for number in count())
        self.error: OSError | None = None

    def run(self) -> None:
        """Sets `error` where something remains."""
        while folders := [name for name in self._folders(self._top) if name not in self._kept]:
            for name in folders:
                with self._noted(name):
                    self._flatten(name)

    def _flatten(self, name: str) -> None:
        folder = _opened(name, self._top)
        try:
            for child in self._folders(folder):
                with self._noted(child):
                    os.close(_opened(child, folder))  # one that cannot be written is not moved
                    os.rename(child, next(self._fresh), src_dir_fd=folder, dst_dir_fd=self._top)
        finally:
            os.close(folder)
        os.rmdir(name, dir_fd=self._top)

    def _folders(self, folder: int) -> list[str]:
        """The names of those in a folder, from which all else is removed."""
        with os.scandir(folder) as found:
            entries = [(entry.name, entry.is_dir(follow_symlinks=False)) for entry in found]
        for name, is_folder in entries:
            if not is_folder:
                with self._noted(name):
                    os.unlink(name, dir_fd=folder)
        return [name for name, is_folder in entries if is_folder]

    @contextmanager
    def _noted(self, name: str) -> Iterator[None]:
        """Go on with the next one where this one stays."""
        try:
            yield
        except FileNotFoundError:
            return
        except OSError as error:
            self.error = self.error or error
            self._kept.add(name)


def _opened(name: str, parent: int | None) -> int:
    """A descriptor of a folder that its owner, from now on, may list and change. Raises OSError."""
    place = os.open(name, _FOLDER | os.O_PATH, dir_fd=parent)
    try:
        path = f"/proc/self/fd/{place}"
        if os.fstat(place).st_mode & 0o700 != 0o700:
            os.chmod(path, 0o700)
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    finally:
        os.close(place)

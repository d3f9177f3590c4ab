"""Folders of their own for temporary files of confined processes, and none left behind.

A server that is killed leaves its folder; the next one over the same state folder removes it.
"""

import fcntl
import os
import tempfile
import threading
from contextlib import suppress
from pathlib import Path

from repository import tree


class ScratchFolders:
    """Below `shelf`, a folder for this process, locked while it lives; any thread may call."""

    def __init__(self, shelf: Path) -> None:
        self._shelf = shelf
        self._opening = threading.Lock()
        self._own: Path | None = None

    def make(self) -> Path:
        """A new, empty folder, private to this user. Raises OSError."""
        with self._opening:
            if self._own is None:
                self._own = self._open()
        return Path(tempfile.mkdtemp(dir=self._own))

    def remove(self, folder: Path) -> None:
        """With everything in it, as far as that can be had; what stays goes with `sweep`."""
        with suppress(OSError):
            tree.remove(folder)

    def close(self) -> None:
        """Remove what is left; the lock goes with the process."""
        if self._own is not None:
            self.remove(self._own)

    def sweep(self) -> None:
        """Remove what servers that were killed have left. Raises OSError."""
        os.close(self._swept())

    def _swept(self) -> int:
        """A descriptor that holds the shelf's lock: nobody else sweeps until it is closed."""
        self._shelf.mkdir(parents=True, exist_ok=True, mode=0o700)
        shelf = os.open(self._shelf, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(shelf, fcntl.LOCK_EX)
            for folder in self._shelf.iterdir():
                _remove_if_abandoned(folder)
        except BaseException:
            os.close(shelf)
            raise
        return shelf

    def _open(self) -> Path:
        shelf = self._swept()
        try:
            own = Path(tempfile.mkdtemp(dir=self._shelf))
            lock = os.open(own, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX)
            except BaseException:
                os.close(lock)
                raise
        finally:
            os.close(shelf)
        return own.resolve()


def _remove_if_abandoned(folder: Path) -> None:
    with suppress(OSError):
        lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            tree.remove(folder)
        finally:
            os.close(lock)

"""One upload on its way to the disk: hashed as it is written, kept only if it is what it claims."""

import os
import secrets
from hashlib import sha256
from pathlib import Path

from repository.files.durable import create, finish, lock, room_for, unlocked, write_all
from repository.files.owner import alive, token
from repository.lfs.errors import WrongHash, WrongSize

_PREFIX = "upload-"


class ObjectUpload:
    """A private temp file for one object; it is gone after `close`.

    Its methods block and must not run at the same time; any thread may call them.
    """

    def __init__(self, folder: Path, oid: str, size_bytes: int) -> None:
        self.path = folder / f"{_PREFIX}{token()}-{secrets.token_hex(8)}"
        self.oid = oid
        self._size_bytes = size_bytes
        self._hasher = sha256()
        self._written = 0
        self._descriptor = -1
        self._lock = -1

    def open(self) -> None:
        """Make the file; raises `DiskFull`."""
        with room_for(f"object {self.oid}"):
            self._descriptor = create(self.path)
            self._lock = lock(self.path)

    def close(self) -> None:
        """Remove the file; whoever linked it to another name keeps it there."""
        if self._lock >= 0:
            os.close(self._lock)
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self.path.unlink(missing_ok=True)

    def write(self, chunk: bytes | bytearray) -> None:
        """Take the next bytes; raises `WrongSize` at the first one too many, or `DiskFull`."""
        self._written += len(chunk)
        if self._written > self._size_bytes:
            raise WrongSize(
                f"object {self.oid} goes on after the {self._size_bytes} bytes announced; "
                "announce the file's own size and push again"
            )
        self._hasher.update(chunk)
        with room_for(f"object {self.oid}"):
            write_all(self._descriptor, chunk)

    def seal(self) -> None:
        """Hold what came against size and oid, and have it on the disk, read-only.

        Raises `WrongSize`, `WrongHash` or `DiskFull`.
        """
        if self._written < self._size_bytes:
            raise WrongSize(
                f"object {self.oid} ends after {self._written} of {self._size_bytes} bytes; "
                "push again"
            )
        found = self._hasher.hexdigest()
        if found != self.oid:
            raise WrongHash(
                f"object {self.oid} arrived with sha256 {found}: it was changed on its way, or "
                "after git-lfs hashed it; push again"
            )
        with room_for(f"object {self.oid}"):
            finish(self._descriptor, found)


def sweep_abandoned(folder: Path) -> list[Path]:
    """Remove what uploads of dead processes have left in `folder`; blocking. Says what."""
    left = [path for path in folder.glob(f"{_PREFIX}*") if _is_abandoned(path)]
    for path in left:
        path.unlink(missing_ok=True)
    return left


def _is_abandoned(path: Path) -> bool:
    owner = path.name.removeprefix(_PREFIX).rpartition("-")[0]
    return not alive(owner) and unlocked(path)

"""Single files on their way into a snapshot: written and hashed, or linked if they are finished."""

import os
import stat
from collections.abc import Iterable
from hashlib import sha256
from pathlib import Path

from repository.files.durable import (
    CHUNK_BYTES,
    create,
    finish,
    is_stamped,
    link,
    open_file,
    write_all,
)
from repository.snapshots.digest import FileEntry
from repository.snapshots.errors import BadEntry


class NewFile:
    """A file that is being written; nobody counts it before its draft says so."""

    def __init__(self, target: Path, path: str) -> None:
        try:
            self._descriptor = create(target)
        except (FileExistsError, IsADirectoryError) as error:
            raise BadEntry(f"file '{path}' is there twice; rename one") from error
        self._path = path
        self._hasher = sha256()
        self._size_bytes = 0

    def write(self, chunk: bytes | bytearray) -> None:
        """The file's next bytes. Raises OSError, which the draft's context explains."""
        self._hasher.update(chunk)
        write_all(self._descriptor, chunk)
        self._size_bytes += len(chunk)

    def entry(self) -> FileEntry:
        """What has been written so far."""
        return FileEntry(self._path, self._size_bytes, self._hasher.hexdigest())

    def finish(self) -> None:
        """Make it read-only and have it on the disk."""
        finish(self._descriptor, self._hasher.hexdigest())

    def close(self) -> None:
        os.close(self._descriptor)


def link_finished(source: Path, target: Path, digest: str, size_bytes: int) -> bool:
    """Link a finished file; False when it is none, was touched since, or no link can be made."""
    try:
        info = source.lstat()
    except FileNotFoundError:
        return False
    if not (stat.S_ISREG(info.st_mode) and is_stamped(info, digest, size_bytes)):
        return False
    try:
        return link(source, target)
    except FileExistsError as error:
        raise BadEntry(f"file '{target.name}' is there twice; rename one") from error


def checked(source: Path, entry: FileEntry) -> Iterable[bytes]:
    """The content of a file; raises `BadEntry` at its end when it is not what it should be."""
    hasher = sha256()
    with open(open_file(source), "rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            hasher.update(chunk)
            yield chunk
    if hasher.hexdigest() != entry.sha256:
        found = f"has sha256 {hasher.hexdigest()} instead of {entry.sha256}"
        raise BadEntry(f"file '{entry.path}' {found}; push it again")

"""Digests of files and of whole folders, read from the disk they will be served from."""

import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import md5, sha1, sha256
from pathlib import Path
from threading import Event
from typing import Protocol

from repository.sources.errors import BadSource
from repository.sources.stores.store import Checksum
from repository.sources.threads import Stopped

_READ_BYTES = 1 << 20
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class FolderDigest:
    """A folder's files: relative paths with sizes in bytes, and one digest "sha256:…" of it all."""

    digest: str
    files: dict[str, int]


def tree(folder: Path, stop: Event, left_out: str = "") -> FolderDigest:
    """Read every file below `folder` but `left_out`; blocks. Raises `Stopped` once `stop` is set.

    The digest is the sha256 of one line per file, sorted by path: path, NUL, size in decimal,
    NUL, sha256 in hex, newline.
    """
    sizes: dict[str, int] = {}
    lines: list[str] = []
    for path in sorted(set(_files(folder)) - {left_out}):
        content = hashed(folder / path, "sha256", stop)
        sizes[path] = (folder / path).stat().st_size
        lines.append(f"{path}\0{sizes[path]}\0{content}\n")
    return FolderDigest(f"sha256:{sha256(''.join(lines).encode()).hexdigest()}", sizes)


def read_digest(text: str | None) -> str | None:
    """An expected digest as `tree` writes it; raises `BadSource` for any other form."""
    if text is not None and not _DIGEST.fullmatch(text.lower()):
        remedy = "write 'sha256:' and 64 hexadecimal digits"
        raise BadSource(f"{text[:100]!a} is no digest; {remedy}")
    return text and text.lower()


def matches(path: Path, checksum: Checksum, stop: Event) -> bool:
    """Whether the file's bytes are those the store meant; blocks."""
    return hashed(path, checksum.algorithm, stop) == checksum.hexdigest.lower()


def hashed(path: Path, algorithm: str, stop: Event) -> str:
    """The file's digest in hex; blocks. Algorithms: sha256, md5, git (a blob's id), crc32c."""
    with open(path, "rb") as file:
        running = _ALGORITHMS[algorithm](os.fstat(file.fileno()).st_size)
        while block := file.read(_READ_BYTES):
            if stop.is_set():
                raise Stopped
            running.update(block)
    return running.digest().hex()


class _RunningHash(Protocol):
    def update(self, block: bytes, /) -> None: ...
    def digest(self) -> bytes: ...


def _git_blob(size: int) -> _RunningHash:
    return sha1(b"blob %d\0" % size, usedforsecurity=False)


def _crc32c(size: int) -> _RunningHash:
    # It comes with gcsfs, and only that store has such checksums.
    import google_crc32c

    made: _RunningHash = google_crc32c.Checksum()  # type: ignore[no-untyped-call]
    return made


_ALGORITHMS: dict[str, Callable[[int], _RunningHash]] = {
    "sha256": lambda size: sha256(),
    "md5": lambda size: md5(usedforsecurity=False),
    "git": _git_blob,
    "crc32c": _crc32c,
}


def _files(folder: Path) -> list[str]:
    return [
        os.path.relpath(os.path.join(above, name), folder)
        for above, _, names in os.walk(folder)
        for name in names
    ]

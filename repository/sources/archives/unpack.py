"""Unpacks an archive of plain files, entry by entry, and refuses all that could reach further."""

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from threading import Event
from typing import IO

from repository.sources.archives import tars, zips
from repository.sources.archives.source_entry import SourceEntry
from repository.sources.errors import BadArchive, TooLarge
from repository.sources.limits import FetchLimits
from repository.sources.names import shown, why_clashing, why_unsafe
from repository.sources.threads import Stopped

MOST_RATIO = 200
"""An archive may unpack to this many times its size; weights seldom pack to less than a half."""
RATIO_FROM_BYTES = 64 << 20
"""Below this size unpacked, no ratio is too high."""

_BLOCK_BYTES = 1 << 20
_LEFT_OUT = ("__MACOSX", ".DS_Store")


@dataclass(frozen=True, slots=True)
class Budget:
    """What an archive may unpack to."""

    bytes_left: int
    files_left: int
    why: str


def unpack(archive: Path, into: Path, limits: FetchLimits, stop: Event) -> list[str]:
    """Unpack `archive` into the empty folder `into` and return its files' paths; blocks.

    Raises `BadArchive`,
    `TooLarge`, or `Stopped` once `stop` is set; `into` then holds a part.
    """
    budget = _budget(archive, limits)
    written: list[str] = []
    for entry in _entries(archive, limits.max_files):
        if stop.is_set():
            raise Stopped
        if _left_out(entry):
            continue
        _refuse(archive, entry)
        written.append(entry.path)
        if len(written) > budget.files_left:
            raise TooLarge(f"'{archive.name}' has more than {budget.files_left} files")
        budget = _write(archive, entry, into / entry.path, budget, stop)
    if why := why_clashing(written):
        raise BadArchive(f"'{archive.name}': {why}")
    if not written:
        raise BadArchive(f"'{archive.name}' has no file in it")
    return written


def why_unreadable(name: str) -> str | None:
    """Why this server cannot unpack archives of this name, or None."""
    if name.lower().endswith(".zst") and tars.zstd() is None:
        return "needs Python 3.14 or the package 'zstandard'; pack it as .tar.gz instead"
    return None


def _entries(archive: Path, max_files: int) -> Iterator[SourceEntry]:
    if archive.name.lower().endswith(".zip"):
        return zips.entries(archive, max_files)
    return tars.entries(archive, max_files)


def _budget(archive: Path, limits: FetchLimits) -> Budget:
    by_ratio = max(RATIO_FROM_BYTES, archive.stat().st_size * MOST_RATIO)
    if by_ratio < limits.max_bytes:
        return Budget(by_ratio, limits.max_files, f"{MOST_RATIO} times its size")
    return Budget(limits.max_bytes, limits.max_files, f"the limit of {limits.max_bytes} bytes")


def _left_out(entry: SourceEntry) -> bool:
    parts = entry.path.split("/")
    return entry.is_folder or parts[0] in _LEFT_OUT or parts[-1] in _LEFT_OUT


def _refuse(archive: Path, entry: SourceEntry) -> None:
    why = why_unsafe(entry.path)
    if why is None and entry.refused:
        why = f"is {entry.refused}; only plain files are unpacked"
    if why is not None:
        raise BadArchive(f"'{archive.name}': {shown(entry.path)} {why}")


def _write(archive: Path, entry: SourceEntry, path: Path, budget: Budget, stop: Event) -> Budget:
    """Unpack one file within the budget; returns what is left of it."""
    left = budget.bytes_left
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _fresh(path) as file, entry.open() as content:
            while block := content.read(min(_BLOCK_BYTES, left + 1)):
                if stop.is_set():
                    raise Stopped
                left -= len(block)
                if left < 0:
                    raise TooLarge(f"'{archive.name}' unpacks to more than {budget.why}")
                file.write(block)
    except (FileExistsError, NotADirectoryError) as error:
        what = "is there twice, or a file where another's folder is"
        raise BadArchive(f"'{archive.name}': {shown(entry.path)} {what}") from error
    return Budget(left, budget.files_left, budget.why)


def _fresh(path: Path) -> IO[bytes]:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.fdopen(os.open(path, flags, 0o600), "wb")

"""What lies in a snapshot, for pages: its files, its config as written, two configs compared.

Blocks. Only for a digest and a model that the API has named to whoever looks.
"""

import difflib
import os
from pathlib import Path

from repository.snapshots import manifest
from repository.snapshots.digest import FileEntry, is_digest
from repository.snapshots.errors import SnapshotError

CONFIG = "config.pbtxt"
LARGEST_BYTES = 256 * 1024


def files(root: Path, digest: str) -> tuple[FileEntry, ...] | None:
    """All files of a snapshot, sorted; None when it is not there (any more)."""
    if not is_digest(digest):
        return None
    try:
        return manifest.read(root / digest).files
    except SnapshotError:
        return None


def config(root: Path, digest: str, model: str) -> str | None:
    """The config as it was pushed, "" when the model has none; None when the snapshot is gone."""
    there = files(root, digest)
    if there is None:
        return None
    if not any(file.path == CONFIG for file in there):
        return ""
    return text(root, digest, model, CONFIG)


def text(root: Path, digest: str, model: str, path: str) -> str | None:
    """A file that the snapshot's list has; None when it cannot be opened."""
    try:
        opened = os.open(root / digest / model / path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return None
    with os.fdopen(opened, "rb") as file:
        return file.read(LARGEST_BYTES).decode(errors="replace")


def difference(old: str, new: str) -> list[tuple[str, str]]:
    """Lines as ("ins" | "del" | "at" | "", text); none when both are the same. Pure."""
    lines = difflib.unified_diff(old.splitlines(), new.splitlines(), lineterm="", n=3)
    kinds = {"+": "ins", "-": "del", "@": "at"}
    return [(kinds.get(line[:1], ""), line) for line in list(lines)[2:]]

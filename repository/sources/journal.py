"""Remembers, in the staging folder itself, which bytes of which source lie there."""

import json
import os
import shutil
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repository.sources.errors import FetchFailed
from repository.sources.names import JOURNAL, PART


@dataclass(frozen=True, slots=True)
class TransferRecord:
    """A file's transfer: the version that was listed, what `open` needs to go on, whether whole."""

    listed: str
    validator: str
    whole: bool


class Journal:
    """One JSON line per step, written before the step touches the disk, so that every file in the
    folder is known to be ours. A last line cut off by a crash is as if it had not been written.
    """

    def __init__(self, folder: Path, source: str) -> None:
        """Begin or go on; raises `FetchFailed` if the folder holds anything else."""
        self._path = folder / JOURNAL
        lines = _lines(self._path)
        _refuse_foreign(folder, source, lines)
        self.files = {
            line["path"]: TransferRecord(line["listed"], line["validator"], line["whole"])
            for line in lines[1:]
        }
        # Written anew, so that what follows never continues a torn line.
        rows = [{"source": source}, *(_row(path, begun) for path, begun in self.files.items())]
        fresh = self._path.with_name(f"{JOURNAL}.new")
        fresh.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
        os.replace(fresh, self._path)
        self._file = open(self._path, "a")  # noqa: SIM115  closed by `close`

    def note(self, path: str, begun: TransferRecord) -> None:
        self.files[path] = begun
        self._file.write(f"{json.dumps(_row(path, begun))}\n")
        self._file.flush()

    def close(self) -> None:
        self._file.close()

    def remove(self) -> None:
        """All is done: the folder now holds nothing but what was fetched."""
        self.close()
        self._path.unlink(missing_ok=True)


def keep_only(folder: Path, paths: set[str]) -> None:
    """Remove what these paths, whole or in part, and the journal do not account for; blocks.

    It is ours all the same: a folder with anything else in it has been refused.
    """
    kept = {JOURNAL, *paths, *(f"{path}{PART}" for path in paths)}
    for above, folders, names in os.walk(folder, topdown=False):
        for name in names:
            path = os.path.join(above, name)
            if os.path.relpath(path, folder) not in kept:
                os.unlink(path)
        for name in folders:
            with suppress(OSError):
                os.rmdir(os.path.join(above, name))


def empty(folder: Path) -> None:
    """Remove all that a fetch put into its folder; blocks."""
    shutil.rmtree(folder)
    folder.mkdir()


def _lines(path: Path) -> list[dict[str, Any]]:
    try:
        text = path.read_text()
    except FileNotFoundError:
        return []
    try:
        return [json.loads(line) for line in text.split("\n")[:-1]]
    except json.JSONDecodeError:
        # Damaged by more than a crash: the folder is one we know nothing about.
        return []


def _refuse_foreign(folder: Path, source: str, lines: list[dict[str, Any]]) -> None:
    if lines and lines[0]["source"] != source:
        held, remedy = lines[0]["source"], "empty it, or give another folder"
        raise FetchFailed(f"'{folder}' holds a transfer of '{held}', not '{source}'; {remedy}")
    if not lines and any(one.name not in (JOURNAL, f"{JOURNAL}.new") for one in folder.iterdir()):
        raise FetchFailed(f"'{folder}' is not empty; give a folder of its own to each fetch")


def _row(path: str, begun: TransferRecord) -> dict[str, Any]:
    return {
        "path": path,
        "listed": begun.listed,
        "validator": begun.validator,
        "whole": begun.whole,
    }

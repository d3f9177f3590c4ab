"""One walk through one model folder: manifests of its versions and of the files beside them."""

import os
import re
import stat
from dataclasses import dataclass
from hashlib import sha256
from itertools import islice
from pathlib import Path

from repository.files.plain_files import FileIdentity, identity_of, kind_of
from repository.findings import Finding
from repository.formats import format_of

CONFIG_NAME = "config.pbtxt"
MOST_ENTRIES = 10_000
"""Files and folders in one model; more are refused, so that a scan stays short."""

_VERSION = re.compile(r"[1-9][0-9]{0,17}")
_NEARLY_VERSION = re.compile(r"[vV]?[0-9][0-9._-]*")

Row = tuple[str, FileIdentity]
"""Relative path, and what changes with the file's content."""


@dataclass(frozen=True, slots=True)
class VersionState:
    """One version folder: its number, a digest of its manifest, how many files it has."""

    number: int
    digest: str
    file_count: int


class ModelWalk:
    """One walk through one model folder; its attributes are what it found. `sealed`: the files are
    those of a snapshot of ours (see `identity_of`)."""

    def __init__(self, folder: Path, inside: str, sealed: bool = False) -> None:
        self.folder = folder
        self.entries = 0
        self.has_config = False
        self.versions: list[VersionState] = []
        self.side: list[Row] = []
        self.ignored: list[str] = []
        self.problems: list[Finding] = []
        self._inside = inside
        self._sealed = sealed
        self._count = 0

    def run(self) -> None:
        if os.path.islink(self.folder) and self._leads_out(str(self.folder), ""):
            return
        try:
            for entry in self._list(str(self.folder)):
                self._top(entry)
        except _TooManyEntries:
            self.versions, self.side = [], []
            remedy = "serve it from fewer, larger files"
            self.complain("", "E207", f"has more than {MOST_ENTRIES} files; {remedy}")

    def complain(self, path: str, code: str, message: str) -> None:
        self.problems.append(Finding(self.folder / path, 0, 0, code, message))

    def _top(self, entry: os.DirEntry[str]) -> None:
        name = entry.name
        if hidden(name):
            return
        self.entries += 1
        if name == CONFIG_NAME:
            self.has_config = not (entry.is_symlink() and self._leads_out(entry.path, name))
        elif not is_folder(entry):
            self.side += self._file(entry, name)
        elif _VERSION.fullmatch(name):
            rows = self._below(entry, name)
            self.versions.append(VersionState(int(name), digest(rows), len(rows)))
        elif _NEARLY_VERSION.fullmatch(name):
            self.ignored.append(name)
        else:
            self.side += (
                (f"{name}/{path}", identity) for path, identity in self._below(entry, name)
            )

    def _below(self, folder: os.DirEntry[str], name: str) -> list[Row]:
        """The manifest of a folder, at any depth, with paths relative to it."""
        rows: list[Row] = []
        if folder.is_symlink() and self._leads_out(folder.path, name):
            return rows
        waiting = [("", folder.path)]
        while waiting:
            prefix, path = waiting.pop()
            for entry in self._list(path):
                relative = prefix + entry.name
                if not is_folder(entry):
                    rows += self._file(entry, relative)
                elif entry.is_symlink() and self._leads_out(entry.path, f"{name}/{relative}"):
                    continue
                elif entry.name != "__pycache__":
                    waiting.append((f"{relative}/", entry.path))
        return rows

    def _file(self, entry: os.DirEntry[str], relative: str) -> list[Row]:
        if entry.is_symlink() and self._leads_out(entry.path, self._relative(entry.path)):
            return []
        try:
            info = entry.stat()
        except OSError as error:
            self.complain(self._relative(entry.path), "E200", f"cannot be read: {error.strerror}")
            return []
        if not stat.S_ISREG(info.st_mode):
            remedy = "a model has plain files and folders only; remove it"
            self.complain(
                self._relative(entry.path), "E210", f"is {kind_of(info.st_mode)}; {remedy}"
            )
            return []
        return [(relative, identity_of(info, self._sealed))]

    def _list(self, path: str) -> list[os.DirEntry[str]]:
        try:
            with os.scandir(path) as entries:
                found = list(islice(entries, MOST_ENTRIES + 1))
        except OSError as error:
            self.complain(self._relative(path), "E200", f"cannot be read: {error.strerror}")
            return []
        self._count += len(found)
        if self._count > MOST_ENTRIES:
            raise _TooManyEntries
        return found

    def _relative(self, path: str) -> str:
        return os.path.relpath(path, self.folder)

    def _leads_out(self, link: str, relative: str) -> bool:
        target = os.path.realpath(link)
        if target == self._inside or target.startswith(f"{self._inside}{os.sep}"):
            return False
        accepted = "copy the files in, or name their folder as a --model-repository"
        self.complain(relative, "E206", f"is a link out of the repository; {accepted}")
        return True


def is_model_folder(root: Path) -> bool:
    """Whether a folder is itself a model and no repository of models: it has a config.pbtxt, or a
    version folder with a model's file in it."""
    if (root / CONFIG_NAME).is_file():
        return True
    try:
        with os.scandir(root) as entries:
            versions = [e.path for e in entries if _VERSION.fullmatch(e.name) and is_folder(e)]
        return any(
            format_of(name) is not None
            for path in versions
            for name in os.listdir(path)
            if os.path.isfile(os.path.join(path, name))
        )
    except OSError:
        return False


class _TooManyEntries(Exception):
    """The model has more entries than MOST_ENTRIES."""


def is_folder(entry: os.DirEntry[str]) -> bool:
    """Whether it is a folder or a link to one; a link to itself is neither."""
    try:
        return entry.is_dir()
    except OSError:
        return False


def hidden(name: str) -> bool:
    """Whether an editor, git or Python put it there, not the model's owner."""
    return name.startswith(".") or name.endswith("~") or name == "__pycache__"


def digest(rows: list[Row]) -> str:
    """The sha256 of a manifest, whatever order it was read in."""
    lines = "".join("\0".join((path, *map(str, who))) + "\n" for path, who in sorted(rows))
    return sha256(lines.encode(errors="surrogateescape")).hexdigest()

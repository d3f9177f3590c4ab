"""The folders of one attempt: what its process reads, and what it writes."""

import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from control.jobs.views import SourceFolder
from control.state_paths import SNAPSHOTS
from jobs.worker.labels import carry_labels
from repository.files.plain_files import kind_of
from repository.tree import walk

CONFIG = "config.pbtxt"
CompleteConfig = Callable[[str, int, Path], str]
"""Takes a model's name, a version and the model's folder, and gives its config as it is in force;
raises CannotRead."""


class CannotRead(Exception):
    """What the job is to read is not there, or is no model; its text says which and why."""


class AttemptFolders(NamedTuple):
    """Below one folder: `sources`, `task_file` and `traffic` (a profile's sampled requests) are
    read, `output` and `scratch` written."""

    root: Path

    @property
    def sources(self) -> Path:
        return self.root / "sources"

    @property
    def output(self) -> Path:
        return self.root / "output"

    @property
    def scratch(self) -> Path:
        return self.root / "scratch"

    @property
    def task_file(self) -> Path:
        return self.root / "task.json"

    @property
    def traffic(self) -> Path:
        return self.root / "traffic.msgpack"

    def make(self) -> None:
        """Raises OSError."""
        for folder in (self.sources, self.output, self.scratch):
            folder.mkdir(mode=0o700)


def model_folder(store: Path, source: SourceFolder) -> Path:
    """Where the model of a version that a job reads lies."""
    if source.folder:
        return Path(source.folder)
    return store / SNAPSHOTS / source.snapshot / source.model


def read_version(store: Path, source: SourceFolder, complete: CompleteConfig, target: Path) -> None:
    """Copy a version's files into the new folder `target`, with its config as it is in force and
    the label files that this names.

    Raises CannotRead, OSError.
    """
    where = f"model '{source.model}' version {source.version}"
    folder = model_folder(store, source)
    version = folder / str(source.version)
    if not version.is_dir():
        raise CannotRead(f"{where} is not there any more: {version} is no folder")
    target.mkdir(mode=0o700)
    for entry in walk(version, _raise):
        relative = Path(entry.path).relative_to(version)
        if entry.is_folder:
            (target / relative).mkdir()
        elif os.path.isdir(entry.path):
            raise CannotRead(f"{where}: '{relative}' is a link to a folder")
        else:
            _copy(Path(entry.path), target / relative, f"{where}: '{relative}'")
    config = complete(source.model, source.version, folder)
    (target / CONFIG).write_text(config)
    carry_labels(config, folder, target)


def _raise(error: OSError) -> None:
    raise error


def data_path(version: Path, model: Path, roots: tuple[Path, ...], text: str) -> Path:
    """The data that a spec names: below the version's folder, below its model's, or, absolute,
    below one of `roots`. Raises CannotRead."""
    bases = (version.resolve(), model.resolve()) if not os.path.isabs(text) else ()
    for base in bases:
        found = (base / text).resolve()
        if found.is_relative_to(base) and found.exists():
            return found
    allowed = [root.resolve() for root in roots]
    found = Path(text).resolve()
    if os.path.isabs(text) and any(found.is_relative_to(root) for root in allowed):
        if found.exists():
            return found
        raise CannotRead(f"the data '{text:.200}' is not on this machine")
    if os.path.isabs(text):
        raise CannotRead(
            f"the data '{text:.200}' lies outside of the folders that jobs may read; name a file "
            "of the model, or allow its folder with --job-data-dir"
        )
    raise CannotRead(
        f"the data '{text:.200}' is neither in the version's folder nor in its model's; push it "
        "with the model, or name a file below --job-data-dir by its absolute path"
    )


def _copy(source: Path, target: Path, what: str) -> None:
    mode = os.stat(source).st_mode
    if not stat.S_ISREG(mode):
        raise CannotRead(f"{what} is {kind_of(mode)}")
    shutil.copyfile(source, target)

"""What is on disk, before anyone has an opinion on it: one `FolderState` per model folder.

Two equal states mean that nothing in the folder has moved. Contents are not read, except for
config.pbtxt; every other file is told apart by its path, size, mtime, ctime and inode.
"""

import os
import time
from dataclasses import dataclass
from pathlib import Path

from repository.config.read import LARGEST_BYTES
from repository.errors import BadRepository
from repository.files.plain_files import FileIdentity, NotPlain, identity_of, open_plain
from repository.findings import Finding, readable
from repository.folders.walk import CONFIG_NAME, ModelWalk, VersionState, digest, hidden, is_folder
from repository.formats import STRAY, format_of, placed

__all__ = ["CONFIG_NAME", "FolderReader", "FolderState"]

CONFIGS = "configs"
"""Folder in a model's folder for configs that `--model-config-name` chooses among."""

_RACY_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class FolderState:
    """One model folder as one scan saw it; `problems` are those that need no config to be seen.

    `config` is config.pbtxt as bytes, None without one; `config_name` says which file in the
    folder it was (see `FolderReader`). `side_digest` covers everything beside the configs and the
    version folders. `ignored` names folders that look like versions and are not, such as "01".
    `stray`: it is no folder, but a model's file in the repository's root.
    """

    name: str
    repository: Path
    folder: Path
    config: bytes | None = None
    versions: tuple[VersionState, ...] = ()
    side_digest: str = ""
    ignored: tuple[str, ...] = ()
    problems: tuple[Finding, ...] = ()
    config_name: str = CONFIG_NAME
    stray: bool = False


class FolderReader:
    """Reads folders; keeps the bytes of every config that has not changed since, until `forget`.

    With `config_name` "h100", a model's configs/h100.pbtxt stands for its config.pbtxt where it
    exists. `sealed`: the files are those of snapshots of ours (see `identity_of`).
    """

    def __init__(self, config_name: str = "", sealed: bool = False) -> None:
        self._variant = f"{CONFIGS}/{config_name}.pbtxt" if config_name else ""
        self._sealed = sealed
        self._configs: dict[str, tuple[FileIdentity, bytes]] = {}

    def repository(self, root: Path) -> dict[str, FolderState]:
        """Every model folder below `root`, hidden and empty ones left out; a model's file that
        lies beside them is a state too, with the reason why it is not served.

        Raises `BadRepository` when `root` cannot be listed.
        """
        inside = os.path.realpath(root)
        states = (self.model(root, root / name, name, inside) for name in self.names(root))
        return {state.name: state for state in states if state is not None}

    def names(self, root: Path) -> list[str]:
        """The folders below `root` that may be models, and files that belong into one. Raises
        `BadRepository`."""
        try:
            with os.scandir(root) as entries:
                return sorted(e.name for e in entries if not hidden(e.name) and self._counts(e))
        except OSError as error:
            remedy = "give a folder of model folders"
            problem = f"model repository '{root}' cannot be read: {error.strerror}; {remedy}"
            raise BadRepository(problem) from error

    def model(self, root: Path, folder: Path, name: str, inside: str) -> FolderState | None:
        """One model folder, or None when it has nothing in it; no link may lead out of `inside`."""
        if folder.suffix in STRAY and folder.is_file():
            return _stray(root, folder)
        walk = ModelWalk(folder, inside, self._sealed)
        walk.run()
        if readable(name) != name:
            name = readable(name)
            walk.complain("", "E200", f"'{name}' is not a UTF-8 name; rename the folder")
        if walk.entries == 0 and not walk.problems:
            return None
        config_name = self._config_name(walk)
        if not walk.versions and not walk.problems:
            _complain_of_no_version(walk, name, bool(config_name))
        return FolderState(
            name,
            root,
            folder,
            self._config(walk, config_name) if config_name else None,
            tuple(sorted(walk.versions, key=lambda version: version.number)),
            digest([row for row in walk.side if not _is_config(row[0])]),
            tuple(sorted(walk.ignored)),
            tuple(walk.problems),
            config_name or CONFIG_NAME,
        )

    def _counts(self, entry: os.DirEntry[str]) -> bool:
        if is_folder(entry):
            return True
        return not self._sealed and os.path.splitext(entry.name)[1] in STRAY

    def forget(self, folder: Path) -> None:
        """Forget the configs of a folder that is there no more."""
        for path in [path for path in self._configs if path.startswith(f"{folder}/")]:
            del self._configs[path]

    def _config_name(self, walk: ModelWalk) -> str:
        if self._variant and any(row[0] == self._variant for row in walk.side):
            return self._variant
        return CONFIG_NAME if walk.has_config else ""

    def _config(self, walk: ModelWalk, name: str) -> bytes | None:
        path = f"{walk.folder}/{name}"
        try:
            identity = identity_of(os.stat(path), self._sealed)
            cached = self._configs.get(path)
            if cached is not None and cached[0] == identity:
                return cached[1]
            with open(open_plain(path), "rb") as file:
                identity = identity_of(os.fstat(file.fileno()), self._sealed)
                # A copy: bytes cut short from so many hold a page and a mapping of their own.
                content = bytes(memoryview(file.read(LARGEST_BYTES + 1)))
        except NotPlain as error:
            walk.complain(name, "E210", f"cannot be read: {error.strerror}")
            return None
        except OSError as error:
            walk.complain(name, "E200", f"cannot be read: {error.strerror}")
            return None
        # A file this young can change once more within the same tick of its mtime.
        if time.time_ns() - max(identity.mtime_ns, identity.ctime_ns) > _RACY_NS:
            self._configs[path] = (identity, content)
        return content


def _is_config(path: str) -> bool:
    return path.startswith(f"{CONFIGS}/") and path.endswith(".pbtxt")


def _stray(root: Path, file: Path) -> FolderState:
    problem = f"lies in the repository's root, where no model is read; {placed(file.name)}"
    finding = Finding(file, 0, 0, "E211", problem)
    return FolderState(readable(file.name), root, file, problems=(finding,), stray=True)


def _complain_of_no_version(walk: ModelWalk, name: str, has_config: bool) -> None:
    files = sorted(path for path, _ in walk.side if "/" not in path)
    loose = [path for path in files if format_of(path) is not None]
    if loose:
        is_checkpoint = "config.json" in files
        place = f"move its files to '{name}/1/'" if is_checkpoint else placed(loose[0], name)
        problem = f"'{name}' has no version folder; {place}"
        walk.complain("", "E201", problem)
    elif not has_config:
        accepted = f"put the model in '{name}/1/', or add '{name}/{CONFIG_NAME}'"
        walk.complain("", "E204", f"'{name}' has no {CONFIG_NAME} and no version; {accepted}")

"""What is on disk, before anyone has an opinion on it: one `FolderState` per model folder.

Two equal states mean that nothing in the folder has moved. Contents are not read, except for
config.pbtxt; every other file is told apart by its path, size and mtime.
"""

import os
import stat
import time
from dataclasses import dataclass
from pathlib import Path

from repository.config import LARGEST_BYTES
from repository.errors import BadRepository
from repository.findings import Finding, readable
from repository.walk import CONFIG_NAME, ModelWalk, VersionState, digest, hidden, is_folder

__all__ = ["CONFIG_NAME", "FolderReader", "FolderState"]

_RACY_NS = 1_000_000_000


@dataclass(frozen=True, slots=True)
class FolderState:
    """One model folder as one scan saw it; `problems` are those that need no config to be seen.

    `config` is config.pbtxt as bytes, None without one. `side_digest` covers everything beside
    the config and the version folders. `ignored` names folders that look like versions and
    are not, such as "01".
    """

    name: str
    repository: Path
    folder: Path
    config: bytes | None = None
    versions: tuple[VersionState, ...] = ()
    side_digest: str = ""
    ignored: tuple[str, ...] = ()
    problems: tuple[Finding, ...] = ()


class FolderReader:
    """Reads folders; keeps the bytes of every config whose size and mtime have not changed."""

    def __init__(self) -> None:
        self._configs: dict[str, tuple[int, int, bytes]] = {}

    def repository(self, root: Path) -> dict[str, FolderState]:
        """Every model folder below `root`, hidden and empty ones left out.

        Raises `BadRepository` when `root` cannot be listed.
        """
        try:
            with os.scandir(root) as entries:
                names = sorted(e.name for e in entries if not hidden(e.name) and is_folder(e))
        except OSError as error:
            wanted = "give a folder of model folders"
            problem = f"model repository '{root}' cannot be read: {error.strerror}; {wanted}"
            raise BadRepository(problem) from error
        inside = os.path.realpath(root)
        states = (self.model(root, root / name, name, inside) for name in names)
        return {state.name: state for state in states if state is not None}

    def model(self, root: Path, folder: Path, name: str, inside: str) -> FolderState | None:
        """One model folder, or None when it has nothing in it; no link may lead out of `inside`."""
        walk = ModelWalk(folder, inside)
        walk.run()
        if readable(name) != name:
            name = readable(name)
            walk.complain("", "E200", f"'{name}' is not a UTF-8 name; rename the folder")
        if walk.seen == 0 and not walk.problems:
            return None
        if not (walk.has_config or walk.versions or walk.problems):
            accepted = f"put the model in '{name}/1/', or add '{name}/{CONFIG_NAME}'"
            walk.complain("", "E204", f"'{name}' has no {CONFIG_NAME} and no version; {accepted}")
        return FolderState(
            name,
            root,
            folder,
            self._config(walk) if walk.has_config else None,
            tuple(sorted(walk.versions, key=lambda version: version.number)),
            digest(walk.side),
            tuple(sorted(walk.ignored)),
            tuple(walk.problems),
        )

    def _config(self, walk: ModelWalk) -> bytes | None:
        path = f"{walk.folder}/{CONFIG_NAME}"
        try:
            info = os.stat(path)
            if not stat.S_ISREG(info.st_mode):
                walk.complain(CONFIG_NAME, "E200", "is not a plain file")
                return None
            known = self._configs.get(path)
            if known is not None and known[:2] == (info.st_size, info.st_mtime_ns):
                return known[2]
            with open(path, "rb") as file:
                content = file.read(LARGEST_BYTES + 1)
        except OSError as error:
            walk.complain(CONFIG_NAME, "E200", f"cannot be read: {error.strerror}")
            return None
        # A file this young can change once more within the same tick of its mtime.
        if time.time_ns() - info.st_mtime_ns > _RACY_NS:
            self._configs[path] = (info.st_size, info.st_mtime_ns, content)
        return content

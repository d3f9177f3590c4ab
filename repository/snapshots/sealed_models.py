"""The models in the store's snapshots, read once each: what has a digest never changes."""

from pathlib import Path

from repository.errors import BadRepository, ConfigError
from repository.findings import reason
from repository.folders.read import FolderReader
from repository.folders.snapshot import model_folder
from repository.model import ModelFolder

Sealed = ModelFolder | str
"""A model as its snapshot in the store has it, or why that cannot be read."""

MOST_KEPT = 20_000
"""Models remembered, some 5 KiB each; past it those not asked for the longest are read again."""


class SnapshotStore:
    """Reads `<root>/<hex>/<model>`, and remembers up to `most`; blocking, one thread at a time."""

    def __init__(self, root: Path, most: int = MOST_KEPT) -> None:
        self._root = root
        self._most = most
        self._read: dict[str, Sealed] = {}
        self._recent: set[str] = set()

    def sealed(self, digest: str) -> Sealed:
        """The model of the snapshot `digest` ("sha256:…" or bare hex), or why it cannot be had."""
        self._recent.add(digest)
        cached = self._read.pop(digest, None)
        if cached is not None:
            self._read[digest] = cached
        else:
            cached = self._look(digest.removeprefix("sha256:"))
            if not isinstance(cached, str):  # what is missing now may be there later
                self._remember(digest, cached)
        return cached

    def forget_others(self) -> None:
        """Forget what was not asked for since this was last called."""
        self._read = {digest: one for digest, one in self._read.items() if digest in self._recent}
        self._recent.clear()

    def _remember(self, digest: str, sealed: Sealed) -> None:
        if len(self._read) >= self._most:
            del self._read[next(iter(self._read))]
        self._read[digest] = sealed

    def _look(self, name: str) -> Sealed:
        folder = self._root / name
        try:
            states = list(FolderReader(sealed=True).repository(folder).values())
        except BadRepository:
            return (
                f"snapshot {name[:12]} is not in the store {self._root}; servers that share a "
                "database share the store as well (--store-dir)"
            )
        if len(states) != 1:
            return f"snapshot {name[:12]} holds {len(states)} models instead of one"
        try:
            return model_folder(states[0])
        except ConfigError as error:
            return reason(error.findings)

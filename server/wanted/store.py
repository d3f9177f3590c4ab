"""The models in the store's snapshots, read once each: what has a digest never changes."""

from pathlib import Path

from repository.errors import BadRepository, ConfigError
from repository.findings import reason
from repository.folders import FolderReader
from repository.snapshot import model_folder
from server.wanted.merge import Sealed

MOST_KEPT = 20_000
"""Models remembered; past it the oldest are read again when they are asked for."""


class SnapshotStore:
    """Reads `<root>/<hex>/<model>`; blocking, one thread at a time."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._reader = FolderReader()
        self._read: dict[str, Sealed] = {}

    def sealed(self, digest: str) -> Sealed:
        """The model of the snapshot `digest` ("sha256:…" or bare hex), or why it cannot be had."""
        known = self._read.get(digest)
        if known is None:
            known = self._look(digest.removeprefix("sha256:"))
            if not isinstance(known, str):  # what is missing now may be there later
                self._remember(digest, known)
        return known

    def _remember(self, digest: str, sealed: Sealed) -> None:
        if len(self._read) >= MOST_KEPT:
            del self._read[next(iter(self._read))]
        self._read[digest] = sealed

    def _look(self, name: str) -> Sealed:
        folder = self._root / name
        try:
            states = list(self._reader.repository(folder).values())
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

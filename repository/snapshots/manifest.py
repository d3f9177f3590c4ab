"""The list of a snapshot's files that lies beside its model folder, as JSON."""

from dataclasses import dataclass
from pathlib import Path

import orjson

from repository.snapshots.digest import FileEntry, is_digest, model_digest
from repository.snapshots.errors import DamagedSnapshot, UnknownSnapshot

NAME = "manifest.json"
LARGEST_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class SnapshotManifest:
    """A model's name and its files, sorted, with paths relative to the model's folder."""

    model: str
    files: tuple[FileEntry, ...]

    @property
    def digest(self) -> str:
        return model_digest(self.model, self.files)


def write(manifest: SnapshotManifest) -> bytes:
    """The manifest's text; the same for the same manifest."""
    rows = [[file.path, file.size_bytes, file.sha256] for file in manifest.files]
    fields = {"model": manifest.model, "digest": manifest.digest, "files": rows}
    return orjson.dumps(fields, option=orjson.OPT_INDENT_2)


def read(folder: Path) -> SnapshotManifest:
    """The manifest of the snapshot in `folder`, which is named by its digest.

    Raises `UnknownSnapshot` when there is no such folder, `DamagedSnapshot` when the manifest is
    missing, unreadable or another one than the folder's name says.
    """
    if not (is_digest(folder.name) and folder.is_dir()):
        raise UnknownSnapshot(f"there is no snapshot {folder.name[:80]}; deploy it again")
    try:
        with open(folder / NAME, "rb") as file:
            manifest = _parse(file.read(LARGEST_BYTES))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise damaged(folder, f"its {NAME} cannot be read ({error})") from error
    if manifest.digest != folder.name:
        raise damaged(folder, f"its {NAME} belongs to {manifest.digest}")
    return manifest


def damaged(folder: Path, problem: str) -> DamagedSnapshot:
    """The error for a snapshot whose files are not what they were."""
    return DamagedSnapshot(f"snapshot {folder.name} is damaged: {problem}; deploy it again")


def _parse(text: bytes) -> SnapshotManifest:
    fields = orjson.loads(text)
    files = tuple(FileEntry(str(row[0]), int(row[1]), str(row[2])) for row in fields["files"])
    return SnapshotManifest(str(fields["model"]), files)

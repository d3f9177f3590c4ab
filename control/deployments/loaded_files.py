"""The files of a version as they lie in the folder it was loaded from, with their digests.

Blocks. A digest is kept for as long as size and time of change of its file stay the same.
"""

import hashlib
import os
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

CONFIG = "config.pbtxt"
MOST_FILES, LARGEST_CONFIG = 500, 256 * 1024
MOST_HASHED_BYTES = 2**30
"""Of one look; what is beyond is listed without its digest, and found the next time."""
MOST_KEPT = 5000


@dataclass(frozen=True, slots=True)
class LoadedFile:
    """`path` within the model's folder; `sha256` "" where it was too much to read at once."""

    path: str
    size_bytes: int
    sha256: str


class FileDigests:
    """The digests of files by what tells whether they changed."""

    def __init__(self) -> None:
        self._known: OrderedDict[tuple[str, int, int], str] = OrderedDict()

    def look(self, folder: Path, version: int) -> list[LoadedFile]:
        """The version's own files, then what lies beside the versions, sorted. Raises OSError."""
        left, found = MOST_HASHED_BYTES, []
        for path in _files(folder, version):
            state = path.stat()
            key = (str(path), state.st_size, state.st_mtime_ns)
            digest = self._known.get(key, "")
            if not digest and state.st_size <= left:
                left -= state.st_size
                digest = self._keep(key, path)
            found.append(LoadedFile(str(path.relative_to(folder)), state.st_size, digest))
        return found

    def _keep(self, key: tuple[str, int, int], path: Path) -> str:
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
        self._known[key] = digest
        while len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)
        return digest


def written_config(folder: Path) -> str:
    """config.pbtxt as it lies there, its first 256 KiB; "" where there is none."""
    try:
        with (folder / CONFIG).open("rb") as file:
            return file.read(LARGEST_CONFIG).decode(errors="replace")
    except OSError:
        return ""


def _files(folder: Path, version: int) -> Iterator[Path]:
    """`MOST_FILES` at most, no links."""
    count = 0
    for top in (folder / str(version), folder):
        for home, folders, names in os.walk(top):
            if top == folder and Path(home) == folder:
                folders[:] = sorted(name for name in folders if not name.isdecimal())
            folders.sort()
            for name in sorted(names):
                path = Path(home) / name
                if path.is_file() and not path.is_symlink():
                    count += 1
                    if count > MOST_FILES:
                        return
                    yield path

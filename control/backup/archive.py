"""The form of a whole backup: a tar of plain files and hard links, and at its end a list of them.

    backup.json                             format and time
    database.jsonl                          `control.backup.rows`
    state/server.json, store/store.json     whose it is
    git/NAME.bundle                         every ref and object of a repository
    lfs/objects/…, lfs/repositories/…       as in the store
    snapshots/DIGEST/…                      as in the store
    manifest.json                           every file's size and sha256

A file that has several names in the store is in the archive once.
"""

import hashlib
import json
import os
import re
import tarfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import IO, Any

from control.errors import Invalid
from repository.files.durable import open_file

FORMAT = 1
HEAD, ROWS, MANIFEST = "backup.json", "database.jsonl", "manifest.json"
SERVER, STORE = "state/server.json", "store/store.json"

LARGEST_MANIFEST_BYTES = 2**28
_BLOCK_BYTES = 2**20

_OID = r"[0-9a-f]{2}/[0-9a-f]{2}/[0-9a-f]{64}"
_REPOSITORY = r"[a-z0-9](?:\.(?!\.)|[a-z0-9_-]){0,99}"
_ALLOWED = re.compile(
    rf"backup\.json|database\.jsonl|manifest\.json|state/server\.json|store/store\.json"
    rf"|git/{_REPOSITORY}\.bundle|lfs/objects/{_OID}|lfs/repositories/{_REPOSITORY}/{_OID}"
    rf"|snapshots/[0-9a-f]{{64}}/.+",
    re.DOTALL,
)
SHARED = ("lfs/", "snapshots/")
"""Where one file may have several names."""


@dataclass(frozen=True, slots=True)
class ArchiveEntry:
    """One file, or another name of one. `sha256` in hex."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class ArchiveManifest:
    """What is in an archive. `repositories`: git repositories, those without a commit too.
    `snapshots`: those that are whole; another may have been removed while it was being copied."""

    files: dict[str, ArchiveEntry]
    repositories: tuple[str, ...]
    snapshots: tuple[str, ...]

    def as_bytes(self) -> bytes:
        files = {name: [one.size_bytes, one.sha256] for name, one in self.files.items()}
        lists = {"repositories": self.repositories, "snapshots": self.snapshots}
        return json.dumps({"format": FORMAT, **lists, "files": files}).encode()


def check_name(name: str) -> None:
    """Raises Invalid for a file that is none of a backup's, or that would lie elsewhere."""
    parts = name.split("/")
    bad = any(part in ("", ".", "..") for part in parts) or "\\" in name or "\0" in name
    if bad or not _ALLOWED.fullmatch(name):
        raise Invalid(f"the archive has a file that no backup has: {name!r:.200}", "archive")


class ArchiveWriter:
    """Writes the files, then the list of them. `out` need not be seekable.

    Use it as a context; what it has written is no archive before `finish`.
    """

    def __init__(self, out: IO[bytes]) -> None:
        self._tar = tarfile.open(fileobj=out, mode="w|", format=tarfile.PAX_FORMAT)  # noqa: SIM115
        self._files: dict[str, ArchiveEntry] = {}
        self._first: dict[tuple[int, ...], str] = {}

    def __enter__(self) -> "ArchiveWriter":
        return self

    def __exit__(self, *failure: Any) -> None:
        self._tar.__exit__(*failure)

    def add_bytes(self, name: str, content: bytes) -> None:
        self._tar.addfile(_info(name, len(content), 0), BytesIO(content))
        self._files[name] = ArchiveEntry(len(content), hashlib.sha256(content).hexdigest())

    def add_file(self, name: str, path: Path) -> None:
        """Raises FileNotFoundError, and nothing is written, when it is gone."""
        with open(open_file(path), "rb", buffering=0) as file:
            info = os.fstat(file.fileno())
            # The same inode with another time is another file: the first one was removed.
            same = (info.st_dev, info.st_ino, info.st_size, info.st_mtime_ns)
            if info.st_nlink > 1 and name.startswith(SHARED):
                if first := self._first.get(same):
                    self._link(name, first)
                    return
                self._first[same] = name
            hashed = _HashingReader(file)
            self._tar.addfile(_info(name, info.st_size, int(info.st_mtime)), hashed)  # type: ignore[arg-type]
            self._files[name] = ArchiveEntry(info.st_size, hashed.hasher.hexdigest())

    def finish(self, repositories: Iterable[str], snapshots: Iterable[str]) -> ArchiveManifest:
        manifest = ArchiveManifest(dict(self._files), tuple(repositories), tuple(snapshots))
        content = manifest.as_bytes()
        self._tar.addfile(_info(MANIFEST, len(content), 0), BytesIO(content))
        return manifest

    def _link(self, name: str, first: str) -> None:
        info = _info(name, 0, 0)
        info.type, info.linkname = tarfile.LNKTYPE, first
        self._tar.addfile(info)
        self._files[name] = self._files[first]


@dataclass(frozen=True, slots=True)
class ArchiveMember:
    """One file of an archive as it is read: `link` is its first name, "" when it has content."""

    name: str
    link: str
    content: IO[bytes] | None


def members(archive: IO[bytes]) -> Iterator[ArchiveMember]:
    """Every file, to be read before the next one is asked for. Raises Invalid for what no backup
    has: other kinds of files, names that lead elsewhere, the same name twice, a cut-off end."""
    names: set[str] = set()
    with _telling(), tarfile.open(fileobj=archive, mode="r|", bufsize=_BLOCK_BYTES) as tar:
        for info in tar:
            yield _member(tar, info, names)


def chunks(content: IO[bytes]) -> Iterator[bytes]:
    """A member's content. Raises Invalid where it ends early."""
    with _telling():
        while chunk := content.read(_BLOCK_BYTES):
            yield chunk


def read_manifest(content: IO[bytes]) -> ArchiveManifest:
    """Raises Invalid for one that is damaged or too large to be one."""
    with _telling():
        text = content.read(LARGEST_MANIFEST_BYTES + 1)
    if len(text) > LARGEST_MANIFEST_BYTES:
        raise Invalid(f"the archive's {MANIFEST} is too large", "archive")
    return _parse(text)


def _parse(text: bytes) -> ArchiveManifest:
    try:
        raw: dict[str, Any] = json.loads(text)
        if raw["format"] != FORMAT:
            raise Invalid(f"the archive has format {raw['format']}, this build reads {FORMAT}")
        files = {
            str(name): ArchiveEntry(int(row[0]), str(row[1])) for name, row in raw["files"].items()
        }
        names, digests = map(str, raw["repositories"]), map(str, raw["snapshots"])
        return ArchiveManifest(files, tuple(names), tuple(digests))
    except (ValueError, KeyError, TypeError, AttributeError, IndexError) as error:
        raise Invalid(f"the archive's {MANIFEST} cannot be read: {error}", "archive") from error


@contextmanager
def _telling() -> Iterator[None]:
    try:
        yield
    except (tarfile.TarError, EOFError) as error:
        raise Invalid(f"the archive is damaged, or is none: {error}", "archive") from error


class _HashingReader:
    """A file that is hashed while tarfile reads it."""

    def __init__(self, file: IO[bytes]) -> None:
        self.file, self.hasher = file, hashlib.sha256()

    def read(self, size: int) -> bytes:
        content = self.file.read(size)
        self.hasher.update(content)
        return content


def _info(name: str, size_bytes: int, mtime: int) -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.size, info.mtime, info.mode = size_bytes, mtime, 0o600
    return info


def _member(tar: tarfile.TarFile, info: tarfile.TarInfo, names: set[str]) -> ArchiveMember:
    check_name(info.name)
    if info.name in names or MANIFEST in names:
        raise Invalid(f"the archive has '{info.name:.200}' where none belongs", "archive")
    linked = info.type == tarfile.LNKTYPE
    if linked and not (info.linkname in names and info.linkname.startswith(SHARED)):
        raise Invalid(f"the archive links '{info.name:.200}' to what is not in it", "archive")
    if not linked and (info.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or info.sparse):
        raise Invalid(f"'{info.name:.200}' is no plain file in the archive", "archive")
    names.add(info.name)
    if linked:
        return ArchiveMember(info.name, info.linkname, None)
    return ArchiveMember(info.name, "", tar.extractfile(info))

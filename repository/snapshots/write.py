"""Writes a snapshot: files into a folder that counts for nothing until it is sealed and renamed.

    with Writer(root).begin("digits", beside=previous) as draft:
        draft.add("config.pbtxt", [config])
        draft.link("1/model.onnx", lfs_path, oid, size_bytes)
        sealed = draft.seal()

Everything here blocks. A process killed at any moment leaves a whole snapshot or a folder whose
name begins with `tmp-`, which `repository.snapshots.stored.sweep` removes.
"""

import errno
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from repository.files.durable import (
    create,
    delete,
    finish,
    lock,
    make_folders,
    room_for,
    sync_folder,
    write_all,
)
from repository.files.owner import token
from repository.folders.walk import MOST_ENTRIES
from repository.snapshots import manifest as manifests
from repository.snapshots.digest import FileEntry, check_model, check_path, digest, versions
from repository.snapshots.errors import BadEntry, DamagedSnapshot, UnknownSnapshot
from repository.snapshots.files import NewFile, checked, link_finished
from repository.snapshots.manifest import SnapshotManifest
from repository.snapshots.stored import TEMP_PREFIX, check_untouched


@dataclass(frozen=True, slots=True)
class WrittenVersion:
    """One version in a snapshot; the same digest means the same files, whatever the number."""

    digest: str
    size_bytes: int
    files: tuple[FileEntry, ...]


@dataclass(frozen=True, slots=True)
class SealedSnapshot:
    """A whole snapshot: `path` is a repository of one model, `path/model` its folder."""

    digest: str
    path: Path
    model: str
    versions: dict[int, WrittenVersion]
    size_bytes: int


class SnapshotWriter:
    """Begins snapshots below `root`; one at a time or many, from any thread."""

    def __init__(self, root: Path) -> None:
        self._root = root

    def begin(self, model: str, beside: Path | None = None) -> "Draft":
        """An empty draft of a snapshot of `model`; use it as a context.

        `beside` is an earlier snapshot's path: files it already has are linked, not stored again.
        Raises `BadEntry` for a name that cannot be a folder, `DiskFull`.
        """
        check_model(model)
        if model == manifests.NAME:
            raise BadEntry(f"model '{model}' has the name of a snapshot's own file; rename it")
        with room_for(f"a snapshot of '{model}'"):
            make_folders(self._root)
            return Draft(self._root, model, _reusable(beside))


class Draft:
    """A snapshot that is being written by one thread; as a context it is gone unless sealed."""

    def __init__(self, root: Path, model: str, reusable: dict[tuple[str, int], Path]) -> None:
        self._root = root
        self._model = model
        self._reusable = reusable
        self._files: dict[str, FileEntry] = {}
        self._folder = _temp(root)
        self._folder.mkdir(mode=0o700)
        self._lock = lock(self._folder)
        self._top = self._folder / model

    def __enter__(self) -> "Draft":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        delete(self._folder)
        os.close(self._lock)

    @property
    def folder(self) -> Path:
        """The model's folder as it is being written, to look at before it is sealed."""
        return self._top

    @property
    def files(self) -> tuple[FileEntry, ...]:
        """What has been written so far, sorted."""
        return tuple(sorted(self._files.values()))

    @contextmanager
    def file(self, path: str) -> Iterator[NewFile]:
        """A new file to write to, `path` relative to the model's folder; it counts from the
        context's end on, unless that raised.

        Raises `BadEntry`, `DiskFull`.
        """
        with self._room_for(path):
            target = self._place(path)
            new = NewFile(target, path)
            try:
                yield new
                if not self._replace(target, new.entry()):
                    new.finish()
            except BaseException:
                target.unlink(missing_ok=True)
                raise
            finally:
                new.close()
        self._added(new.entry())

    def add(self, path: str, chunks: Iterable[bytes]) -> FileEntry:
        """Write a file from its content; says what it turned out to be.

        Raises `BadEntry`, `DiskFull`, or whatever `chunks` raises.
        """
        with self.file(path) as new:
            for chunk in chunks:
                new.write(chunk)
        return new.entry()

    def reuse(self, path: str, sha256: str, size_bytes: int) -> bool:
        """Link a file of this content out of the earlier snapshot; False when it has none.

        Ask before fetching a file whose sha256 is known.
        """
        source = self._reusable.get((sha256, size_bytes))
        if source is None:
            return False
        with self._room_for(path):
            if not link_finished(source, self._place(path), sha256, size_bytes):
                return False
        self._added(FileEntry(path, size_bytes, sha256))
        return True

    def link(self, path: str, source: Path, sha256: str, size_bytes: int) -> FileEntry:
        """Have a stored, read-only file of known content (an LFS object) at `path` as well.

        It is copied, and its content held against `sha256`, where it cannot be linked. Raises
        `BadEntry` when it is not what it should be, FileNotFoundError, `DiskFull`.
        """
        entry = FileEntry(path, size_bytes, sha256)
        if self.reuse(path, sha256, size_bytes):
            return entry
        with self._room_for(path):
            if link_finished(source, self._place(path), sha256, size_bytes):
                return self._added(entry)
        return self.add(path, checked(source, entry))

    def seal(self) -> SealedSnapshot:
        """Make the snapshot immutable and give it its name; the draft is finished.

        A snapshot of the same content that is there already is kept, and replaced only if its
        files are damaged. Raises `BadEntry` for a model without a file, `DiskFull`.
        """
        if not self._files:
            raise BadEntry(f"model '{self._model}' has no file; add one")
        manifest = SnapshotManifest(self._model, tuple(sorted(self._files.values())))
        with room_for(f"a snapshot of '{self._model}'"):
            text = manifests.write(manifest)
            descriptor = create(self._folder / manifests.NAME)
            try:
                write_all(descriptor, text)
                finish(descriptor, sha256(text).hexdigest())
            finally:
                os.close(descriptor)
            _close_folders(self._folder)
            target = self._root / manifest.digest
            _move_in(self._folder, target)
        return _sealed(manifest, target)

    def _room_for(self, path: str) -> AbstractContextManager[None]:
        return room_for(f"file '{path}' of '{self._model}'")

    def _place(self, path: str) -> Path:
        """Where to put a new file, its folder made."""
        check_path(path)
        if len(self._files) >= MOST_ENTRIES:
            raise BadEntry(f"model '{self._model}' has more than {MOST_ENTRIES} files; use fewer")
        target = self._top / path
        try:
            target.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        except (FileExistsError, NotADirectoryError) as error:
            raise BadEntry(f"file '{path}' lies below another file; rename one") from error
        return target

    def _replace(self, target: Path, entry: FileEntry) -> bool:
        """Put a link to the earlier snapshot's file, if any, in the place of the one written."""
        source = self._reusable.get((entry.sha256, entry.size_bytes))
        aside = self._folder / ".link"  # no model has such a name
        if source is None or not link_finished(source, aside, entry.sha256, entry.size_bytes):
            return False
        os.replace(aside, target)
        return True

    def _added(self, entry: FileEntry) -> FileEntry:
        self._files[entry.path] = entry
        return entry


def _reusable(beside: Path | None) -> dict[tuple[str, int], Path]:
    """Files of an earlier snapshot by sha256 and size, as far as nobody has touched them."""
    if beside is None:
        return {}
    try:
        manifest = manifests.read(beside)
    except (UnknownSnapshot, DamagedSnapshot):
        return {}  # then every file is written; nothing depends on what is saved here
    model = beside / manifest.model
    return {(file.sha256, file.size_bytes): model / file.path for file in manifest.files}


def _temp(root: Path) -> Path:
    return root / f"{TEMP_PREFIX}{token()}-{secrets.token_hex(8)}"


def _close_folders(top: Path) -> None:
    """Make every folder read-only and have its names on the disk, the inner ones first.

    One that is empty, because its file was refused, is removed.
    """
    for base, _, _ in os.walk(top, topdown=False):
        if not os.listdir(base):
            os.rmdir(base)
            continue
        os.chmod(base, 0o500)
        sync_folder(Path(base))


def _move_in(draft: Path, target: Path) -> None:
    """Rename a closed draft to its digest, unless the same content is there, unharmed."""
    try:
        os.rename(draft, target)
    except OSError as error:
        if error.errno not in (errno.ENOTEMPTY, errno.EEXIST):
            raise
        if _is_whole(target):
            os.utime(target)  # it is in use from now on; `sweep` looks at this
            return
        _heal(draft, target)
    sync_folder(target.parent)


def _heal(draft: Path, target: Path) -> None:
    """Put a draft in the place of a damaged snapshot; who has its files open keeps them."""
    aside = _temp(target.parent)
    os.rename(target, aside)
    os.rename(draft, target)
    delete(aside)


def _is_whole(target: Path) -> bool:
    """Whether a snapshot's files are there and untouched, as far as sizes and mtimes tell."""
    try:
        check_untouched(target, manifests.read(target))
    except (UnknownSnapshot, DamagedSnapshot):
        return False
    return True


def _sealed(manifest: SnapshotManifest, path: Path) -> SealedSnapshot:
    found = {
        number: WrittenVersion(digest(files), sum(file.size_bytes for file in files), files)
        for number, files in versions(manifest.files).items()
    }
    size_bytes = sum(file.size_bytes for file in manifest.files)
    return SealedSnapshot(manifest.digest, path, manifest.model, found, size_bytes)

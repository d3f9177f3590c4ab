"""A backup made into a server again: in empty folders and an empty database, whole or not at all.

Everything is unpacked beside its place and held against the archive's list before it is put there.
A restore that is killed leaves folders that the next one refuses: empty them first.
"""

import asyncio
import hashlib
import json
import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sqlalchemy.engine import make_url

from control.backup import archive
from control.backup import rows as backup
from control.backup.archive import ArchiveEntry, ArchiveManifest, ArchiveMember
from control.errors import Conflict, Invalid
from control.sql.database import Database
from control.sql.engines import check_url
from control.sql.migrate import migrate
from repository.files import durable
from repository.git import bare
from repository.git.bare import BareRepository, ReceiveLimits
from repository.git.process import run

UNBUNDLE_S = 3600.0
"""The longest that git may take over one repository."""


@dataclass(frozen=True, slots=True)
class _RestorePaths:
    """Where things go, and where they are unpacked: in a folder there, on the same filesystem."""

    state_dir: Path
    store_dir: Path
    mark: str

    @property
    def state(self) -> Path:
        return self.state_dir / self.mark

    @property
    def store(self) -> Path:
        return self.store_dir / self.mark

    def of(self, name: str) -> Path:
        """Where a file of the archive is unpacked to."""
        if name in (archive.SERVER, archive.STORE):
            return (self.state if name == archive.SERVER else self.store) / Path(name).name
        return (self.store if name.startswith(archive.SHARED) else self.state) / name


def restore(path: Path, state_dir: Path, store_dir: Path, database_url: str) -> ArchiveManifest:
    """Unpack the archive at `path`; returns what was in it.

    Folders must be missing or empty, the database without rows. Raises Conflict when they are
    not, Invalid for an archive that is damaged or none, OSError, GitError, DatabaseGone; then
    there is what there was before (and empty tables in a PostgreSQL database).
    """
    mark = f".restoring-{secrets.token_hex(8)}"
    places = _RestorePaths(state_dir.absolute(), store_dir.absolute(), mark)
    _check_empty(places.state_dir, places.store_dir)
    _check_unused(database_url)
    with open(path, "rb") as file, _cleaned(places):
        manifest = _unpack(file, places)
        for name in manifest.repositories:
            asyncio.run(_restore_repository(places, name))
        _seal(places.store / "snapshots", manifest.snapshots)
        _put(places.store, places.store_dir)
        _put(places.state, places.state_dir, (Path(archive.SERVER).name,))
        os.sync()  # the files' folders as well, before rows speak of them
        _load_rows(places.of(archive.ROWS), database_url)
    return manifest


def _check_empty(state_dir: Path, store_dir: Path) -> None:
    if state_dir == store_dir:
        raise Invalid(f"the state and the store cannot both be {state_dir}", "store_dir")
    for folder in (state_dir, store_dir):
        if folder.exists() and not (folder.is_dir() and not any(folder.iterdir())):
            raise Conflict(f"{folder} is not empty; a backup is restored into an empty folder")


def _check_unused(database_url: str) -> None:
    """Look before the long work; SQLite's file is mostly not there yet."""
    url = make_url(check_url(database_url))
    if url.get_backend_name() == "sqlite" and not Path(url.database or "").exists():
        return
    with _opened(database_url) as database, database.reading() as session:
        backup.check_unused(session)


@contextmanager
def _opened(database_url: str) -> Iterator[Database]:
    database = Database(database_url)
    try:
        migrate(database)
        yield database
    finally:
        database.close()


@contextmanager
def _cleaned(places: _RestorePaths) -> Iterator[None]:
    """What was unpacked and not put in place goes when the block ends; everything if it fails."""
    folders = (places.store_dir, places.state_dir)
    new = [folder for folder in folders if not folder.exists()]
    try:
        for folder in (places.state, places.store):
            durable.make_folders(folder)
        yield
    except BaseException:
        for folder in folders:
            _empty(folder)
        for folder in new:
            durable.delete(folder)
        raise
    for folder in (places.state, places.store):
        durable.delete(folder)


def _empty(folder: Path) -> None:
    for path in folder.iterdir() if folder.exists() else ():
        if path.is_dir():
            durable.delete(path)
        else:
            path.unlink(missing_ok=True)


def _unpack(file: IO[bytes], places: _RestorePaths) -> ArchiveManifest:
    found: dict[str, ArchiveEntry] = {}
    manifest = None
    for member in archive.members(file):
        if member.name == archive.MANIFEST:
            assert member.content is not None
            manifest = archive.read_manifest(member.content)
        else:
            found[member.name] = _unpack_file(member, places, found)
    if manifest is None:
        raise Invalid("the archive ends early: it has no list of its files", "archive")
    _check_files(found, manifest)
    _check_head(places.of(archive.HEAD))
    return manifest


def _unpack_file(
    member: ArchiveMember, places: _RestorePaths, found: dict[str, ArchiveEntry]
) -> ArchiveEntry:
    target = places.of(member.name)
    target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    if member.link:
        source = places.of(member.link)
        if not durable.link(source, target):
            with open(durable.open_file(source), "rb") as content:
                _write(target, archive.chunks(content), read_only=True)
        return found[member.link]
    assert member.content is not None
    return _write(target, archive.chunks(member.content), target.is_relative_to(places.store))


def _write(target: Path, chunks: Iterable[bytes], read_only: bool) -> ArchiveEntry:
    hasher, size_bytes = hashlib.sha256(), 0
    descriptor = durable.create(target)
    try:
        for chunk in chunks:
            hasher.update(chunk)
            size_bytes += len(chunk)
            durable.write_all(descriptor, chunk)
        if read_only:
            durable.finish(descriptor, hasher.hexdigest())
        else:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    return ArchiveEntry(size_bytes, hasher.hexdigest())


def _check_files(found: dict[str, ArchiveEntry], manifest: ArchiveManifest) -> None:
    if found == manifest.files and {archive.HEAD, archive.ROWS} <= found.keys():
        return
    names = {archive.HEAD, archive.ROWS} | found.keys() | manifest.files.keys()
    name = min(one for one in names if found.get(one) != manifest.files.get(one))
    what = "is missing" if name not in found else "is not what was written into it"
    raise Invalid(f"the archive is damaged: '{name}' {what}", "archive")


def _check_head(path: Path) -> None:
    try:
        head = json.loads(path.read_bytes())
        made_by, form = head["backup"], head["format"]
    except (ValueError, KeyError, TypeError):
        made_by, form = "", 0
    if (made_by, form) != ("modelyard", archive.FORMAT):
        raise Invalid(f"this is no archive of format {archive.FORMAT} of Modelyard's", "archive")


async def _restore_repository(places: _RestorePaths, name: str) -> None:
    made = await bare.create(places.store, name, ReceiveLimits())
    bundle = places.of(f"git/{name}.bundle")
    if bundle.exists():
        unbundled = await run(made.path, "bundle", "unbundle", str(bundle), timeout_s=UNBUNDLE_S)
        lines = (line.split(" ", 1) for line in unbundled.stdout.decode().splitlines())
        refs = {ref: oid for oid, ref in lines if ref.startswith("refs/")}
        commands = "".join(f"create {ref} {oid}\n" for ref, oid in refs.items())
        await run(made.path, "update-ref", "--stdin", stdin=commands.encode())
        bundle.unlink()
    bare.configure(places.store_dir, BareRepository(name, made.path), ReceiveLimits())


def _seal(folder: Path, whole: Iterable[str]) -> None:
    """Snapshots as they were: read-only; one that was being removed is left out."""
    keep = set(whole)
    for snapshot in folder.iterdir() if folder.is_dir() else ():
        if snapshot.name not in keep:
            durable.delete(snapshot)
            continue
        for base, _, _ in os.walk(snapshot, topdown=False):
            os.chmod(base, 0o500)


def _put(staged: Path, folder: Path, names: Iterable[str] | None = None) -> None:
    """Move what was unpacked to its place, all of it or these names."""
    for name in os.listdir(staged) if names is None else names:
        if (staged / name).exists():
            os.rename(staged / name, folder / name)
    durable.sync_folder(folder)


def _load_rows(rows: Path, database_url: str) -> None:
    """Raises as `control.backup.rows.load` does, and leaves no new file then."""
    url = make_url(check_url(database_url))
    own = Path(url.database or "") if url.get_backend_name() == "sqlite" else None
    new = own is not None and not own.exists()
    try:
        with _opened(database_url) as database, open(rows, "rb") as lines:
            backup.load(database, lines)
    except BaseException:
        if own is not None and new:
            for ending in ("", "-wal", "-shm", ".migrating"):
                own.with_name(own.name + ending).unlink(missing_ok=True)
        raise

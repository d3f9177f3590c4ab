"""A backup of everything, online: rows, git repositories, LFS objects and snapshots in one archive.

Rows come first; what they speak of was stored before they were written and is never changed, so
that whatever is copied later has it. Everything here blocks; git's work is a process of its own.
"""

import asyncio
import fcntl
import json
import os
import re
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from sqlalchemy import select
from sqlalchemy.orm import Session

from control.backup import rows as backup
from control.backup.archive import FORMAT, HEAD, ROWS, SERVER, STORE, ArchiveManifest, ArchiveWriter
from control.clock import text_of, utc_now
from control.desired_rows import desired
from control.errors import Conflict
from control.sql.database import Database
from control.tables import Repository, SnapshotRow
from repository.files.durable import create, lock, make_folders, sync_folder
from repository.git.errors import GitFailed
from repository.git.process import run

BUNDLE_S = 3600.0
"""The longest that git may take over one repository."""

_OID = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class BackedUpFiles:
    """What a backup holds. `size_bytes` of the files in it, each counted once per name."""

    repositories: int
    snapshots: int
    files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class _ReferencedFiles:
    """What the rows speak of; without `needed` the restored server could not serve."""

    repositories: tuple[str, ...]
    snapshots: tuple[str, ...]
    needed: frozenset[str]


def archive_to(database: Database, state_dir: Path, store_dir: Path, path: Path) -> BackedUpFiles:
    """Write the backup to a new file, readable by this user alone: whole, or not there at all.

    Raises FileExistsError and other OSErrors, Conflict while another backup is being taken or
    when a repository or a snapshot that is served is not whole, DatabaseGone.
    """
    if path.exists():
        raise FileExistsError(f"there is a file {path} already; choose another name")
    unfinished = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
    try:
        with open(create(unfinished), "wb") as out:
            taken = archive(database, state_dir, store_dir, out)
            out.flush()
            os.fsync(out.fileno())
        os.link(unfinished, path)  # unlike a rename it replaces nothing
        sync_folder(path.parent)
    finally:
        unfinished.unlink(missing_ok=True)
    return taken


def archive(database: Database, state_dir: Path, store_dir: Path, out: IO[bytes]) -> BackedUpFiles:
    """Write the backup to `out`, a pipe for instance; raises as `archive_to` does."""
    with _workspace(state_dir) as workspace, ArchiveWriter(out) as writer:
        head = {"backup": "modelyard", "format": FORMAT, "at": text_of(utc_now())}
        writer.add_bytes(HEAD, json.dumps(head).encode())
        references = _add_rows(database, workspace, writer)
        for name, path in ((SERVER, state_dir / "server.json"), (STORE, store_dir / "store.json")):
            with suppress(FileNotFoundError):
                writer.add_file(name, path)
        for repository in references.repositories:
            _add_repository(store_dir, workspace, writer, repository)
        _add_lfs(store_dir / "lfs", writer)
        whole = _add_snapshots(store_dir / "snapshots", writer, references)
        return _taken(writer.finish(references.repositories, whole))


@contextmanager
def _workspace(state_dir: Path) -> Iterator[Path]:
    """A folder for what must be written down first; what a killed backup left in it is removed."""
    folder = state_dir / "backing-up"
    make_folders(folder)
    try:
        held = lock(folder)
    except BlockingIOError:
        raise Conflict("another backup is being taken; wait for its end") from None
    try:
        for left in folder.iterdir():
            left.unlink()
        yield folder
    finally:
        for left in folder.iterdir():
            left.unlink()
        fcntl.flock(held, fcntl.LOCK_UN)  # a child just being started may have it open as well
        os.close(held)


def _add_rows(database: Database, workspace: Path, writer: ArchiveWriter) -> _ReferencedFiles:
    rows = workspace / ROWS
    with database.reading() as session, open(create(rows), "wb") as file:
        backup.dump(session, file)
        references = _referenced(session)
    writer.add_file(ROWS, rows)
    rows.unlink()
    return references


def _referenced(session: Session) -> _ReferencedFiles:
    models = desired(session, utc_now()).models
    pinned = [pin.snapshot for model in models for pin in model.pins]
    return _ReferencedFiles(
        repositories=tuple(session.scalars(select(Repository.name).order_by(Repository.name))),
        snapshots=tuple(session.scalars(select(SnapshotRow.digest).order_by(SnapshotRow.digest))),
        needed=frozenset(digest for digest in (*(m.snapshot for m in models), *pinned) if digest),
    )


def _add_repository(store_dir: Path, workspace: Path, writer: ArchiveWriter, name: str) -> None:
    """Its refs and their objects, whatever is pushed meanwhile; nothing for one without refs."""
    path, bundle = store_dir / "git" / f"{name}.git", workspace / f"{name}.bundle"
    try:
        if not path.is_dir() or not _git(path, "for-each-ref", "--count=1"):
            return
        _git(path, "bundle", "create", "--quiet", str(bundle.absolute()), "--all")
    except GitFailed as error:
        raise Conflict(f"the repository '{name}' cannot be backed up: {error}") from error
    writer.add_file(f"git/{name}.bundle", bundle)
    bundle.unlink()


def _git(path: Path, *arguments: str) -> bytes:
    return asyncio.run(run(path, *arguments, timeout_s=BUNDLE_S)).stdout


def _add_lfs(folder: Path, writer: ArchiveWriter) -> None:
    for part in ("objects", "repositories"):
        for path in _files(folder / part):
            if _OID.fullmatch(path.name):
                with suppress(FileNotFoundError):  # removed with its repository
                    writer.add_file(f"lfs/{path.relative_to(folder).as_posix()}", path)


def _add_snapshots(folder: Path, writer: ArchiveWriter, references: _ReferencedFiles) -> list[str]:
    whole = []
    for digest in references.snapshots:
        if _add_snapshot(folder / digest, writer):
            whole.append(digest)
        elif digest in references.needed:
            raise Conflict(f"the snapshot {digest} is served and missing in {folder}")
    return whole


def _add_snapshot(folder: Path, writer: ArchiveWriter) -> bool:
    """Whether it was there until its last file."""
    try:
        for path in _files(folder):
            writer.add_file(f"snapshots/{path.relative_to(folder.parent).as_posix()}", path)
    except FileNotFoundError:
        return False
    return folder.is_dir()


def _files(folder: Path) -> Iterator[Path]:
    """What lies below `folder`, by name; bytecode that a worker left counts for nothing."""
    for base, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if name != "__pycache__")
        yield from (Path(base, name) for name in sorted(files))


def _taken(manifest: ArchiveManifest) -> BackedUpFiles:
    return BackedUpFiles(
        repositories=len(manifest.repositories),
        snapshots=len(manifest.snapshots),
        files=len(manifest.files),
        size_bytes=sum(one.size_bytes for one in manifest.files.values()),
    )

"""The snapshots that are there: listed, held against their digests, removed. Everything blocks."""

import os
import secrets
import stat
from collections.abc import Callable, Collection
from pathlib import Path

from repository.files.durable import delete, hash_file, is_stamped, sync_folder, unlocked
from repository.files.owner import token
from repository.snapshots import manifest as manifests
from repository.snapshots.digest import is_digest
from repository.snapshots.errors import UnknownSnapshot
from repository.snapshots.manifest import SnapshotManifest, damaged

TEMP_PREFIX = "tmp-"
GRACE_S = 3600.0
"""A snapshot this young may belong to somebody who has not yet told."""


def digests(root: Path) -> list[str]:
    """The digests of all snapshots, sorted."""
    try:
        return sorted(name for name in os.listdir(root) if is_digest(name))
    except FileNotFoundError:
        return []


def verify(root: Path, digest: str) -> SnapshotManifest:
    """Read every byte of a snapshot and say what it holds.

    Raises `UnknownSnapshot`, or `DamagedSnapshot` with the first file that is not what it was.
    """
    folder = root / digest
    manifest = manifests.read(folder)
    _check_names(folder, manifest)
    for file in manifest.files:
        try:
            found = hash_file(folder / manifest.model / file.path)
        except OSError as error:
            raise damaged(folder, f"'{file.path}' cannot be read ({error.strerror})") from error
        if found != (file.sha256, file.size_bytes):
            raise damaged(folder, f"'{file.path}' has sha256 {found[0]} and {found[1]} bytes")
    return manifest


def check_untouched(folder: Path, manifest: SnapshotManifest) -> None:
    """Look whether a snapshot's files are there with their sizes and mtimes; reads none.

    Raises `DamagedSnapshot`.
    """
    _check_names(folder, manifest)
    for file in manifest.files:
        info = os.lstat(folder / manifest.model / file.path)
        if not (stat.S_ISREG(info.st_mode) and is_stamped(info, file.sha256, file.size_bytes)):
            raise damaged(folder, f"'{file.path}' was changed")


def remove(root: Path, digest: str) -> None:
    """Remove a snapshot; what other snapshots share with it stays theirs.

    Raises `UnknownSnapshot`. Killed half-way, it leaves a folder for `sweep`.
    """
    if not is_digest(digest):
        raise UnknownSnapshot(f"there is no snapshot {digest[:80]}")
    delete(_set_aside(root, digest))


def sweep(
    root: Path,
    owner_alive: Callable[[str], bool],
    digests: Collection[str],
    now: float,
    grace_s: float = GRACE_S,
) -> list[str]:
    """Remove drafts of dead owners and snapshots that nobody knows; says which.

    `owner_alive` is asked with a draft's owner (`repository.files.owner.alive`). A snapshot is left
    while its sealing lies less than `grace_s` before `now` (Unix time).
    """
    swept = []
    for name in sorted(os.listdir(root)) if root.is_dir() else ():
        path = root / name
        if name.startswith(TEMP_PREFIX) and _is_abandoned(path, owner_alive):
            delete(path)
        elif not (
            is_digest(name) and name not in digests and _remove_idle(root, name, now - grace_s)
        ):
            continue
        swept.append(name)
    return swept


def _remove_idle(root: Path, digest: str, since: float) -> bool:
    """Remove a snapshot that nobody has sealed since (Unix time); whether it was one.

    Whoever seals it anew in this moment has stamped it, and finds it in its place again.
    """
    try:
        if os.stat(root / digest).st_mtime > since:
            return False
        doomed = _set_aside(root, digest)
        if os.stat(doomed).st_mtime > since:
            os.rename(doomed, root / digest)
            return False
    except (FileNotFoundError, UnknownSnapshot):
        return False
    delete(doomed)
    return True


def _set_aside(root: Path, digest: str) -> Path:
    doomed = root / f"{TEMP_PREFIX}{token()}-{secrets.token_hex(8)}"
    try:
        os.rename(root / digest, doomed)
    except FileNotFoundError as error:
        raise UnknownSnapshot(f"there is no snapshot {digest}") from error
    sync_folder(root)
    return doomed


def _check_names(folder: Path, manifest: SnapshotManifest) -> None:
    """A worker that runs as root leaves bytecode, which counts for nothing."""
    names = {manifests.NAME, *(f"{manifest.model}/{file.path}" for file in manifest.files)}
    found = set(_paths(folder))
    left = {path for path in found - names if "__pycache__" in path.split("/")}
    if found - left != names:
        path = min((found - left) ^ names)
        raise damaged(folder, f"'{path}' {'was added' if path in found else 'is missing'}")


def _is_abandoned(path: Path, owner_alive: Callable[[str], bool]) -> bool:
    owner = path.name.removeprefix(TEMP_PREFIX).rpartition("-")[0]
    return not owner_alive(owner) and unlocked(path)


def _paths(top: Path) -> list[str]:
    """Every file and link below `top`."""
    found = []
    for base, folders, files in os.walk(top):
        links = [name for name in folders if os.path.islink(f"{base}/{name}")]
        found += [os.path.relpath(f"{base}/{name}", top) for name in files + links]
    return found

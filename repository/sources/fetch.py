"""Fetches a source into a staging folder: listed, transferred, unpacked, and held to a digest."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import TypeGuard

from repository.sources.archives.unpack import unpack, why_unreadable
from repository.sources.digest import FolderDigest, read_digest, tree
from repository.sources.errors import (
    BadArchive,
    BadSource,
    FetchFailed,
    Interrupted,
    TooLarge,
    WrongDigest,
)
from repository.sources.journal import Journal, empty, keep_only
from repository.sources.layout import wrapper
from repository.sources.limits import FetchLimits
from repository.sources.names import (
    JOURNAL,
    UNPACKING,
    shown,
    why_clashing,
    why_reserved,
    why_unsafe,
)
from repository.sources.progress import Meter, Progress
from repository.sources.stores.store import RemoteFile, SourceStore, open_store
from repository.sources.threads import stoppable
from repository.sources.transfer import Transfer, persist
from repository.sources.urls.url import ARCHIVES, Source, WebFile

_LISTING_STALLS = 4
"""A listing has no bytes to watch; it gets this many times the longest stall."""


@dataclass(frozen=True, slots=True)
class FetchResult:
    """What now lies in the staging folder, and nothing else: its digest, paths, sizes in bytes."""

    digest: str
    files: dict[str, int]


async def fetch(
    source: Source,
    into: Path,
    limits: FetchLimits,
    progress: Callable[[Progress], None],
    expected_digest: str | None = None,
) -> FetchResult:
    """Bring `source` into the folder `into`, which is made if need be.

    `into` must be empty, or left by a call for the same source, and is one call's alone. A call
    that is cancelled or ends with `FetchFailed` leaves it such that a second one goes on with what
    has arrived; `TooLarge`, `BadArchive` and `WrongDigest` leave it empty. `BadSource` is raised
    for a URL that leads to a forbidden address. `expected_digest` is as `FetchResult` has it.
    `progress` is called on the loop, about four times a second.
    """
    digest = read_digest(expected_digest)
    _refuse_unreadable(source)
    await asyncio.to_thread(into.mkdir, parents=True, exist_ok=True)
    try:
        async with asyncio.timeout(limits.total_s) as deadline:
            return await _fetch(source, into, limits, Meter(limits.max_bytes, progress), digest)
    except TimeoutError as error:
        if not deadline.expired():
            raise FetchFailed(f"'{source.text}': {error}") from error
        kept = "call again to go on with what has arrived"
        problem = f"'{source.text}' took longer than {limits.total_s:g} s; {kept}"
        raise FetchFailed(problem) from error
    except OSError as error:
        raise FetchFailed(f"'{source.text}' cannot be stored: {error}") from error


async def _fetch(
    source: Source, into: Path, limits: FetchLimits, meter: Meter, digest: str | None
) -> FetchResult:
    journal = Journal(into, _identity(source))
    try:
        await _transfer(source, into, limits, meter, journal)
        found = await _unpacked(source, into, limits, digest)
        journal.remove()
    except (TooLarge, BadArchive, WrongDigest):
        await asyncio.to_thread(empty, into)
        raise
    finally:
        journal.close()
    return FetchResult(found.digest, found.files)


async def _transfer(
    source: Source, into: Path, limits: FetchLimits, meter: Meter, journal: Journal
) -> None:
    store = await open_store(source, limits)
    try:
        remotes = await persist(lambda: _listed(store, source, limits), limits)
        meter.expect({remote.path: remote.size for remote in remotes})
        await asyncio.to_thread(keep_only, into, {remote.path for remote in remotes})
        _refuse_full_disk(into, remotes)
        transfer = Transfer(store, into, journal, limits, meter)
        for remote in remotes:
            await transfer.file(remote)
    finally:
        await store.close()


async def _listed(store: SourceStore, source: Source, limits: FetchLimits) -> list[RemoteFile]:
    seconds = limits.stall_s * _LISTING_STALLS
    try:
        async with asyncio.timeout(seconds) as deadline:
            remotes = await store.listing()
    except TimeoutError as error:
        if not deadline.expired():
            raise
        raise Interrupted(f"'{source.text}' was not listed within {seconds:g} s") from error
    if len(remotes) > limits.max_files:
        raise TooLarge(f"'{source.text}' has more than {limits.max_files} files")
    if not remotes:
        raise FetchFailed(f"'{source.text}' holds no file; name the folder that the files are in")
    for remote in remotes:
        if why := why_unsafe(remote.path) or why_reserved(remote.path):
            raise FetchFailed(f"'{source.text}': {shown(remote.path)} {why}")
    if why := why_clashing(remote.path for remote in remotes):
        raise FetchFailed(f"'{source.text}': {why}")
    return remotes


async def _unpacked(
    source: Source, into: Path, limits: FetchLimits, digest: str | None
) -> FolderDigest:
    """The staging folder with every file in its place; raises `WrongDigest`."""
    if not _is_archive(source):
        found = await stoppable(lambda stop: tree(into, stop, JOURNAL))
        _refuse_other(source, found, digest)
        return found
    archive, folder = into / source.name, into / UNPACKING
    paths = await stoppable(lambda stop: unpack(archive, folder, limits, stop))
    inner = folder / wrapper(paths)
    found = await stoppable(lambda stop: tree(inner, stop))
    _refuse_other(source, found, digest)
    archive.unlink()
    for path in sorted(inner.iterdir()):
        if why := why_reserved(path.name):
            raise BadArchive(f"'{source.name}': {shown(path.name)} {why}")
        path.rename(into / path.name)
    await asyncio.to_thread(shutil.rmtree, folder)
    return found


def _refuse_other(source: Source, found: FolderDigest, digest: str | None) -> None:
    if digest is not None and found.digest != digest:
        what = f"has the digest {found.digest}, not the expected {digest}"
        raise WrongDigest(f"'{source.text}' {what}; what was fetched is removed")


def _refuse_unreadable(source: Source) -> None:
    if _is_archive(source) and (why := why_unreadable(source.name)):
        raise BadSource(f"'{source.text}' {why}")


def _refuse_full_disk(into: Path, remotes: Sequence[RemoteFile]) -> None:
    there = sum(path.stat().st_size for path in into.rglob("*") if path.is_file())
    missing = sum(remote.size or 0 for remote in remotes) - there
    free = shutil.disk_usage(into).free
    if missing > free:
        raise FetchFailed(f"{missing} bytes are to come, and '{into}' has {free} free")


def _identity(source: Source) -> str:
    """What two calls must agree in; the query of an address is hashed, as it may be secret."""
    if isinstance(source, WebFile) and source.url != source.text:
        return f"{source.text}?{sha256(source.url.encode()).hexdigest()[:16]}"
    return source.text


def _is_archive(source: Source) -> TypeGuard[WebFile]:
    return isinstance(source, WebFile) and source.suffix in ARCHIVES

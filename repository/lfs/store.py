"""The store of large files: bytes lie once, and each repository sees only what was sent to it."""

import asyncio
import os
import stat
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

from repository.files.durable import (
    CHUNK_BYTES,
    delete,
    hash_file,
    make_folders,
    open_file,
    room_for,
    sync_folder,
)
from repository.lfs.errors import BadRange, UnknownObject, UploadStalled
from repository.lfs.paths import LfsPaths
from repository.lfs.threads import in_thread
from repository.lfs.upload import ObjectUpload, sweep_abandoned

STALL_S = 60.0


class LfsStore:
    """Objects below `<folder>/lfs`, each read-only and named by its sha256.

    A repository has an object when a hard link says so below its own name. What is not a
    coroutine blocks for a few system calls, or longer where it says so. Any name or oid that
    cannot be one raises `BadName`.
    """

    def __init__(self, folder: Path) -> None:
        self._places = LfsPaths(folder / "lfs")

    def size(self, repository: str, oid: str) -> int | None:
        """How many bytes the repository's object has; None when it has no such object."""
        try:
            info = self._places.claim(repository, oid).lstat()
        except (FileNotFoundError, NotADirectoryError):
            return None
        return info.st_size if stat.S_ISREG(info.st_mode) else None

    def path(self, repository: str, oid: str) -> Path:
        """The object's read-only file, to link (`Draft.link`) or to read; never to change.

        Raises `UnknownObject`.
        """
        if self.size(repository, oid) is None:
            raise UnknownObject(
                f"repository '{repository}' has no object {oid}; push it with git-lfs"
            )
        return self._places.claim(repository, oid)

    async def receive(
        self,
        repository: str,
        oid: str,
        size_bytes: int,
        chunks: AsyncIterator[bytes],
        stall_s: float = STALL_S,
    ) -> None:
        """Take an object in; when this returns it is whole, on the disk and the repository's.

        Raises `WrongSize`, `WrongHash`, `UploadStalled` after `stall_s` without a byte, `DiskFull`,
        or whatever `chunks` raises; then, and when cancelled, nothing is left of it. The same
        object may come in several times at once.
        """
        self._places.claim(repository, oid)
        await in_thread(make_folders, self._places.incoming)
        incoming = ObjectUpload(self._places.incoming, oid, size_bytes)
        try:
            await in_thread(incoming.open)
            await _fill(incoming, chunks, stall_s)
            await in_thread(incoming.seal)
            await in_thread(self._keep, incoming.path, repository, oid, size_bytes)
        finally:
            await in_thread(incoming.close)

    @asynccontextmanager
    async def open_range(
        self, repository: str, oid: str, start: int = 0, end: int | None = None
    ) -> AsyncIterator["ObjectRange"]:
        """The object's bytes from `start` up to, not including, `end` (or its end).

        Raises `UnknownObject`, or `BadRange` for a range that has no byte in it.
        """
        opened = ObjectRange(self.path(repository, oid), start, end)
        try:
            await in_thread(opened.open)
            yield opened
        finally:
            opened.close()

    async def verify(self, repository: str, oid: str) -> bool:
        """Whether the bytes on the disk still are the object's; reads them all.

        Raises `UnknownObject`.
        """
        path = self.path(repository, oid)
        digest, _ = await asyncio.to_thread(hash_file, path)
        return digest == oid

    def forget(self, repository: str) -> None:
        """The repository has no object any more; the bytes stay until `collect`."""
        delete(self._places.repository(repository))

    def collect(self) -> int:
        """Remove objects that neither a repository nor a snapshot links to; says how many bytes.

        Blocks for a look at every object. Safe beside everything else: who links to an object
        in that moment keeps its bytes under the new name.
        """
        freed_bytes = 0
        for place in self._places.root.glob("objects/*/*/*"):
            info = place.lstat()
            if info.st_nlink == 1:
                place.unlink()
                freed_bytes += info.st_size
        return freed_bytes

    def sweep(self) -> list[Path]:
        """Remove what uploads of dead processes have left; says what. Call it on start."""
        return sweep_abandoned(self._places.incoming)

    def _keep(self, temp: Path, repository: str, oid: str, size_bytes: int) -> None:
        """Link a sealed file to its two places; one that is there already is left as it is."""
        place, claim = self._places.object(oid), self._places.claim(repository, oid)
        with room_for(f"object {oid}"):
            make_folders(place.parent)
            make_folders(claim.parent)
            _settle(temp, place, size_bytes)
            try:
                _settle(place, claim, size_bytes)
            except FileNotFoundError:  # collected just now, before anyone linked to it
                _settle(temp, claim, size_bytes)


class ObjectRange:
    """An open object, from byte `start` up to, not including, `end`, of `total` bytes."""

    def __init__(self, path: Path, start: int, end: int | None) -> None:
        self._path = path
        self._wanted_end = end
        self._descriptor = -1
        self.start = start
        self.end = start
        self.total = 0

    def open(self) -> None:
        """Raises `BadRange` when there is no byte in the range of an object that has some."""
        self._descriptor = open_file(self._path)
        self.total = os.fstat(self._descriptor).st_size
        self.end = self.total if self._wanted_end is None else min(self._wanted_end, self.total)
        is_all_of_nothing = self.start == self.end == self.total == 0
        if not (0 <= self.start < self.end or is_all_of_nothing):
            span = f"{self.start} to {self._wanted_end or 'the end'}"
            problem = f"bytes {span} of object {self._path.name} were asked for"
            raise BadRange(f"{problem}; it has {self.total}", self.total)

    def close(self) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)

    async def chunks(self) -> AsyncIterator[bytes]:
        """The bytes, at most 1 MiB at once; valid while the context that gave us is open."""
        position = self.start
        while position < self.end:
            size = min(CHUNK_BYTES, self.end - position)
            chunk = await in_thread(os.pread, self._descriptor, size, position)
            if not chunk:
                return
            position += len(chunk)
            yield chunk


async def _fill(incoming: ObjectUpload, chunks: AsyncIterator[bytes], stall_s: float) -> None:
    """Write all chunks, in blocks worth a thread's while: the wire's chunks are small."""
    block = bytearray()
    while (chunk := await _next(chunks, incoming.oid, stall_s)) is not None:
        block += chunk
        if len(block) >= CHUNK_BYTES:
            await in_thread(incoming.write, block)
            block = bytearray()
    await in_thread(incoming.write, block)


async def _next(chunks: AsyncIterator[bytes], oid: str, stall_s: float) -> bytes | None:
    try:
        async with asyncio.timeout(stall_s):
            return await anext(chunks, None)
    except TimeoutError as error:
        raise UploadStalled(
            f"no byte of object {oid} came for {stall_s:g} s; push again"
        ) from error


def _settle(source: Path, target: Path, size_bytes: int) -> None:
    """Have `source` at `target`; a whole one there stays, one of another length is replaced."""
    with suppress(FileNotFoundError):
        if target.lstat().st_size != size_bytes:
            target.unlink(missing_ok=True)
    with suppress(FileExistsError):
        os.link(source, target, follow_symlinks=False)
    sync_folder(target.parent)

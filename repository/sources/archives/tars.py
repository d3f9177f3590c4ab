"""The entries of a tar archive, read as a stream so that nothing of it is kept in memory."""

import tarfile
import zlib
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import IO, Any

from repository.sources.archives.source_entry import SourceEntry
from repository.sources.errors import BadArchive

_LARGEST_HEADER_BYTES = 1 << 20
_ENTRIES_PER_FILE = 2
"""Folders and such are entries as well; a thousand more are granted to small limits."""


def entries(archive: Path, max_files: int) -> Iterator[SourceEntry]:
    """Raises `BadArchive` when it is no tar, or is damaged."""
    with _reading(archive), ExitStack() as held:
        file, mode = _opened(archive, held)
        opened = held.enter_context(tarfile.open(fileobj=file, mode=mode, tarinfo=_TarHeader))
        most = max_files * _ENTRIES_PER_FILE + 1000
        for count, member in enumerate(opened):
            if count == most:
                raise BadArchive(f"'{archive.name}' has more than {most} entries")
            yield _entry(archive, opened, member)


def zstd() -> ModuleType | None:
    """The module that reads zstd, of Python itself (3.14) or installed, or None."""
    for name in ("compression.zstd", "zstandard"):
        try:
            return import_module(name)
        except ModuleNotFoundError:
            continue
    return None


class _TarHeader(tarfile.TarInfo):
    """A header that takes no more memory than a name needs, and is never a sparse file's."""

    def _proc_member(self, tar: tarfile.TarFile) -> Any:
        if self.type == tarfile.GNUTYPE_SPARSE:
            raise tarfile.ReadError("it has a sparse file; pack it without --sparse")
        if self.type in _HEADERS and self.size > _LARGEST_HEADER_BYTES:
            raise tarfile.ReadError(f"it has a header of {self.size} bytes")
        return super()._proc_member(tar)  # type: ignore[misc]

    def _proc_gnusparse_00(self, *given: Any) -> None:
        raise tarfile.ReadError("it has a sparse file; pack it without --sparse")

    _proc_gnusparse_01 = _proc_gnusparse_00
    _proc_gnusparse_10 = _proc_gnusparse_00


_HEADERS = (
    tarfile.XHDTYPE,
    tarfile.XGLTYPE,
    tarfile.SOLARIS_XHDTYPE,
    tarfile.GNUTYPE_LONGNAME,
    tarfile.GNUTYPE_LONGLINK,
)


def _entry(archive: Path, opened: tarfile.TarFile, member: tarfile.TarInfo) -> SourceEntry:
    @contextmanager
    def content() -> Iterator[IO[bytes]]:
        with _reading(archive):
            file = opened.extractfile(member)
            if file is None:
                raise BadArchive(f"'{archive.name}' is damaged: an entry has no bytes")
            with file:
                yield file

    path = member.name.removeprefix("./").rstrip("/")
    return SourceEntry(path, member.isdir(), _refused(member), content)


def _refused(member: tarfile.TarInfo) -> str:
    if member.issym():
        return "a symbolic link"
    if member.islnk():
        return "a hard link"
    if member.isdev():
        return "a device or a pipe"
    return "" if member.isreg() or member.isdir() else "of an unknown kind"


def _opened(archive: Path, held: ExitStack) -> tuple[IO[bytes], Any]:
    name = archive.name.lower()
    file = held.enter_context(archive.open("rb"))
    if not name.endswith(".zst"):
        return file, "r|" if name.endswith(".tar") else "r|gz"
    reader = zstd()
    if reader is None:
        raise BadArchive(f"'{archive.name}' is packed with zstd, which is not installed here")
    return held.enter_context(reader.open(file, "rb")), "r|"


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    reader = zstd() if archive.name.lower().endswith(".zst") else None
    unpacking: tuple[type[Exception], ...] = (tarfile.TarError, zlib.error, EOFError, ValueError)
    if reader is not None:
        unpacking = (*unpacking, reader.ZstdError)
    try:
        yield
    except unpacking as error:
        raise BadArchive(f"'{archive.name}' cannot be unpacked: {str(error)[:200]}") from error

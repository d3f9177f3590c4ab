"""The entries of a zip archive, read without trusting what its directory says."""

import stat
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from os import SEEK_END
from pathlib import Path
from struct import Struct
from typing import IO

from repository.sources.archives.source_entry import SourceEntry
from repository.sources.errors import BadArchive, TooLarge

_DIRECTORY_BYTES_PER_FILE = 1024
_ENCRYPTED = 0x1
_FIRST_ENTRY, _ZIP64_MAGIC, _LOCATOR_MAGIC = b"PK\x03\x04", b"PK\x06\x06", b"PK\x06\x07"
_END_BYTES, _ZIP64_BYTES, _LOCATOR = 22, 56, Struct("<4sLQL")
"""At the end of an archive: large ones have a second record of their directory, and a locator."""

_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_KINDS = {
    stat.S_IFLNK: "a symbolic link",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
}


def entries(archive: Path, max_files: int) -> Iterator[SourceEntry]:
    """Raises `BadArchive` when it is no zip, `TooLarge` when its directory is out of proportion."""
    with _reading(archive), open(archive, "rb") as file:
        _refuse_long_directory(archive, file, max_files)
        with zipfile.ZipFile(file) as opened:
            for info in opened.infolist():
                yield _entry(archive, opened, info)


def _entry(archive: Path, opened: zipfile.ZipFile, info: zipfile.ZipInfo) -> SourceEntry:
    @contextmanager
    def content() -> Iterator[IO[bytes]]:
        with _reading(archive), opened.open(info) as file:
            yield file

    return SourceEntry(info.filename.rstrip("/"), info.is_dir(), _refused(info), content)


def _refused(info: zipfile.ZipInfo) -> str:
    if info.flag_bits & _ENCRYPTED:
        return "encrypted"
    if info.compress_type not in _METHODS:
        # bzip2 and lzma may ask for gigabytes of memory to unpack a few bytes.
        return "packed in another way than stored or deflated"
    return _KINDS.get(stat.S_IFMT(info.external_attr >> 16), "")


def _refuse_long_directory(archive: Path, file: IO[bytes], max_files: int) -> None:
    size_bytes = directory_bytes(file)
    if size_bytes is None:
        raise BadArchive(f"'{archive.name}' is no zip archive, or its end is missing")
    if size_bytes > (max_files + 1) * _DIRECTORY_BYTES_PER_FILE:
        raise TooLarge(f"'{archive.name}' has more than {max_files} files, going by its directory")
    file.seek(0)


def directory_bytes(file: IO[bytes]) -> int | None:
    """How much of a zip archive is its directory, None when it is no such archive.

    zipfile makes objects of the whole directory at once; this is the size it will read.
    """
    found = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    return None if found is None else int(found[5])


def is_straight(file: IO[bytes]) -> bool:
    """Whether every reader finds the same entries: the archive begins the file, its directory lies
    where its end record says and ends where that begins, and nothing follows.

    zipfile shifts all offsets where that is not so; other readers take them as they are written.
    """
    found = zipfile._EndRecData(file)  # type: ignore[attr-defined]
    file.seek(0)
    magic = file.read(4)
    file.seek(0)
    if found is None or magic != _FIRST_ENTRY:
        return False
    size_bytes, start, where = found[5], found[6], found[9]
    end = file.seek(0, SEEK_END) - _END_BYTES
    file.seek(max(0, where - _LOCATOR.size))
    locator = file.read(_LOCATOR.size)
    file.seek(0)
    if locator.startswith(_LOCATOR_MAGIC):
        records = where - _LOCATOR.size - _ZIP64_BYTES
        pointed = found[0] == _ZIP64_MAGIC and _LOCATOR.unpack(locator)[2] == records
        return bool(pointed and where == end and start + size_bytes == records)
    return bool(where == end and start + size_bytes == where)


@contextmanager
def _reading(archive: Path) -> Iterator[None]:
    try:
        yield
    except (zipfile.BadZipFile, zlib.error, NotImplementedError, EOFError, ValueError) as error:
        raise BadArchive(f"'{archive.name}' is damaged: {str(error)[:200]}") from error

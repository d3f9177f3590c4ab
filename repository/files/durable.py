"""Files that are whole or not there: made exclusively, stamped, synced, and linked, not copied."""

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from hashlib import sha256
from pathlib import Path

from repository.errors import DiskFull
from repository.tree import remove

CHUNK_BYTES = 1 << 20
"""What is read or written at once, so that no file need fit into memory."""

_NO_LINKS = frozenset(
    (errno.EXDEV, errno.EMLINK, errno.EPERM, errno.EACCES, errno.ENOTSUP, errno.ENOSYS)
)
"""Another filesystem, too many links, or a filesystem or kernel that allows none."""


def create(path: Path, mode: int = 0o600) -> int:
    """A descriptor for a new, empty file. Raises FileExistsError, for a symlink too."""
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(path, flags, mode)


def open_file(path: Path) -> int:
    """A descriptor to read `path`, which must not be a symlink. Raises OSError."""
    return os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)


def write_all(descriptor: int, content: bytes | bytearray | memoryview) -> None:
    """Write every byte, however often the kernel takes only a part. Raises OSError."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(descriptor, rest) :]


def finish(descriptor: int, digest: str) -> None:
    """Make a written file read-only, stamp it and have it on the disk; it stays open."""
    os.fchmod(descriptor, 0o400)
    os.utime(descriptor, ns=(stamp_ns(digest), stamp_ns(digest)))
    os.fsync(descriptor)


def stamp_ns(digest: str) -> int:
    """The mtime of a file with this sha256: made from its content.

    Whoever tells files apart by path, size and mtime (`repository.folders.read`) then finds two
    copies of the same content equal, and two contents of one length different.
    """
    return int(digest[:14], 16)


def is_stamped(info: os.stat_result, digest: str, size_bytes: int) -> bool:
    """Whether a file's size and mtime are those of this content, untouched since `finish`."""
    return info.st_size == size_bytes and info.st_mtime_ns == stamp_ns(digest)


def link(source: Path, target: Path) -> bool:
    """Hard-link; False where no link can be made. Raises other OSErrors, FileExistsError too."""
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        return False
    return True


def hash_file(path: Path) -> tuple[str, int]:
    """The sha256 of a file, in hex, and its size in bytes. Raises OSError."""
    hasher, size_bytes = sha256(), 0
    with open(open_file(path), "rb", buffering=0) as file:
        while chunk := file.read(CHUNK_BYTES):
            hasher.update(chunk)
            size_bytes += len(chunk)
    return hasher.hexdigest(), size_bytes


def sync_folder(folder: Path) -> None:
    """Have the names in `folder` on the disk."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folders(folder: Path) -> None:
    """Make `folder` and those it is in, private to this user, and have their names on the disk."""
    if folder.is_dir():
        return
    make_folders(folder.parent)
    with suppress(FileExistsError):
        folder.mkdir(mode=0o700)
        sync_folder(folder.parent)


def lock(path: Path) -> int:
    """A descriptor that holds the lock of a file or folder while it is open.

    Raises BlockingIOError when another has it, OSError when it is gone.
    """
    descriptor = open_file(path)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def unlocked(path: Path) -> bool:
    """Whether nobody holds the lock of this file or folder, which may be gone already."""
    try:
        os.close(lock(path))
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def delete(folder: Path) -> None:
    """Remove a folder with everything in it, read-only folders included; gone is fine. Raises
    OSError."""
    remove(folder)


@contextmanager
def room_for(what: str) -> Iterator[None]:
    """While inside, a full disk is told as `DiskFull`, naming `what` was being stored."""
    try:
        yield
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        raise DiskFull(
            f"{what} cannot be stored: {error.strerror}; free space and retry"
        ) from error

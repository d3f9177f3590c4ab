"""Plain files, told apart from pipes, sockets and devices before anything of them is read; and what
tells one content of a plain file from the next.
"""

import os
import stat
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

_KINDS = {
    stat.S_IFIFO: "a named pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFDIR: "a folder",
}


class NotPlain(OSError):
    """It is no plain file; `strerror` says what it is."""

    def __init__(self, mode: int) -> None:
        super().__init__(0, f"it is {kind_of(mode)}, not a plain file")


def kind_of(mode: int) -> str:
    """A file's kind by its `st_mode`, in words."""
    return _KINDS.get(stat.S_IFMT(mode), "of an unknown kind")


def open_plain(path: "str | os.PathLike[str]") -> int:
    """A descriptor to read a plain file, at once: a pipe without a writer is not waited for.

    Raises NotPlain, OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOCTTY | os.O_CLOEXEC)
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        raise NotPlain(mode)
    return descriptor


class FileIdentity(NamedTuple):
    """Two reads between which this has not changed have read the same. All but `size` in ns or
    numbers of the file system; 0 where it is not to be relied on."""

    size: int
    mtime_ns: int
    ctime_ns: int = 0
    inode: int = 0


def identity_of(info: os.stat_result, sealed: bool = False) -> FileIdentity:
    """`sealed`: the file is one of ours that is never written again and whose mtime is made from
    its content; links to it come and go, which changes its ctime."""
    if sealed:
        return FileIdentity(info.st_size, info.st_mtime_ns)
    inode = info.st_ino if _keeps_inodes(info.st_dev) else 0
    return FileIdentity(info.st_size, info.st_mtime_ns, info.st_ctime_ns, inode)


def _keeps_inodes(device: int) -> bool:
    """File systems in user space may number a file anew whenever they have forgotten it."""
    return not _kind_of(device).startswith(("fuse", "9p", "virtiofs", "cifs", "smb"))


def changes_unseen(path: Path) -> bool:
    """Whether files may change there without the system's events: other machines write to them.
    Raises OSError."""
    return _kind_of(os.stat(path).st_dev).startswith(_SHARED)


_SHARED = (
    "nfs", "cifs", "smb", "9p", "virtiofs", "fuse", "fakeowner", "vboxsf", "ceph", "glusterfs",
    "lustre", "gpfs", "beegfs", "afs", "ocfs2", "gfs2",
)  # fmt: skip


@lru_cache(maxsize=1024)
def _kind_of(device: int) -> str:
    """The kind of its file system, e.g. "ext4"; "" where that is not known."""
    number = f"{os.major(device)}:{os.minor(device)}"
    try:
        with open("/proc/self/mountinfo", "rb") as mounts:
            for line in mounts:
                fields, _, rest = line.decode(errors="replace").partition(" - ")
                if fields.split()[2] == number:
                    return rest.split(" ", 1)[0]
    except (OSError, IndexError):
        pass
    return ""

"""Landlock, the kernel's sandbox for unprivileged processes, by its three system calls.

Constants are those of <linux/landlock.h>. Applies to the calling thread and whatever it starts.
"""

import ctypes
import os
import stat
from collections.abc import Iterable

_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446  # on every architecture
_VERSION_FLAG = 1
_PATH_BENEATH = 1

_EXECUTE, _WRITE_FILE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 1, 1 << 2, 1 << 3
_MAKE_CHAR, _MAKE_BLOCK = 1 << 6, 1 << 11
_REFER, _TRUNCATE, _IOCTL_DEV = 1 << 13, 1 << 14, 1 << 15
_OF_FILES = _EXECUTE | _WRITE_FILE | _READ_FILE | _TRUNCATE | _IOCTL_DEV
_FIRST_ABI = (1 << 13) - 1
_BIND_TCP, _CONNECT_TCP = 1, 2
_SCOPE_ABSTRACT_UNIX, _SCOPE_SIGNAL = 1, 2

READ = _EXECUTE | _READ_FILE | _READ_DIR
WRITE = (READ | _FIRST_ABI | _REFER | _TRUNCATE) & ~(_MAKE_CHAR | _MAKE_BLOCK)
DEVICE = READ | _WRITE_FILE | _IOCTL_DEV
CHANGE = _WRITE_FILE
"""Write into files that are there, and nothing more."""

_libc = ctypes.CDLL(None, use_errno=True)


class _Ruleset(ctypes.Structure):
    _fields_ = (("fs", ctypes.c_uint64), ("net", ctypes.c_uint64), ("scoped", ctypes.c_uint64))


class _PathBeneath(ctypes.Structure):
    _pack_ = 1
    _layout_ = "ms"
    _fields_ = (("allowed", ctypes.c_uint64), ("parent", ctypes.c_int32))


def abi() -> int:
    """The kernel's Landlock ABI; 0 where there is none."""
    found: int = _libc.syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), _VERSION_FLAG)
    return max(found, 0)


class Ruleset:
    """What is allowed; everything else is not, once `restrict_self` was called."""

    def __init__(self, kernel_abi: int, tcp: bool) -> None:
        """`tcp`: whether TCP is allowed; it is refused where the kernel can. Raises OSError."""
        self._handled = _handled(kernel_abi)
        net = 0 if tcp or kernel_abi < 4 else _BIND_TCP | _CONNECT_TCP
        scoped = _SCOPE_ABSTRACT_UNIX | _SCOPE_SIGNAL if kernel_abi >= 6 else 0
        made = _Ruleset(self._handled, net, scoped)
        # Kernels refuse a larger structure than they know if the rest is not zero, which it is.
        size = ctypes.c_size_t(ctypes.sizeof(made))
        self._fd = _checked(_libc.syscall(_CREATE_RULESET, ctypes.byref(made), size, 0))

    def allow(self, paths: Iterable[str], rights: int) -> None:
        """`rights` below each path that exists and can be opened. Raises OSError."""
        for path in paths:
            try:
                fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
            except OSError:
                continue  # gone, or not ours to see
            try:
                self._add(fd, rights)
            finally:
                os.close(fd)

    def restrict_self(self) -> None:
        """From here on, for this thread and what it starts; `no_new_privs` must be set."""
        _checked(_libc.syscall(_RESTRICT_SELF, self._fd, 0))
        os.close(self._fd)

    def _add(self, fd: int, rights: int) -> None:
        mode = os.fstat(fd).st_mode
        allowed = rights & self._handled & (~0 if stat.S_ISDIR(mode) else _OF_FILES)
        rule = _PathBeneath(allowed, fd)
        _checked(_libc.syscall(_ADD_RULE, self._fd, _PATH_BENEATH, ctypes.byref(rule), 0))


def _handled(kernel_abi: int) -> int:
    handled = _FIRST_ABI
    for since, right in ((2, _REFER), (3, _TRUNCATE), (5, _IOCTL_DEV)):
        handled |= right if kernel_abi >= since else 0
    return handled


def _checked(result: int) -> int:
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result

"""A POSIX shared memory object of a client, opened with care.

It is read and written through its descriptor and never mapped. Under a mapping, a client that
truncates its object, or a full /dev/shm, would end the server with SIGBUS; a read comes back short
and a write with an errno. What it costs is the one copy that receiving the bytes would cost too.
"""

import os
import stat
from collections.abc import Callable
from weakref import finalize

import numpy as np

from server.errors import InvalidRequest

FOLDER = "/dev/shm"
"""Where Linux keeps what shm_open names."""

RESERVED = ("triton_python_backend_shm_region_", "modelyard_", "sem.")
"""Beginnings of keys no client may register: backends' regions, ours, POSIX semaphores."""

_MAX_KEY_BYTES = 255
_Move = Callable[[int, list[memoryview], int], int]
_FOR_EVERYBODY = stat.S_IROTH | stat.S_IWOTH
_FLAGS = os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK


class SystemRegion:
    """`byte_size` bytes from `offset` of the object `key`, open while anybody holds this."""

    __slots__ = ("__weakref__", "_fd", "byte_size", "key", "name", "offset")
    kind = "system"

    def __init__(self, name: str, key: str, offset: int, byte_size: int) -> None:
        """Open it. Raises InvalidRequest when the key or the bounds cannot be allowed."""
        self.name = name
        self.key = key
        self.offset = offset
        self.byte_size = byte_size
        if byte_size < 1:
            raise InvalidRequest(self._failed(f"byte_size must be at least 1, got {byte_size}"))
        self._fd = self._open()
        finalize(self, os.close, self._fd)
        self._check_bounds()

    def read(self, offset: int, byte_size: int) -> memoryview:
        octets = np.empty(byte_size, np.uint8).data
        found = self._transfer(os.preadv, octets, self.offset + offset)
        if found < byte_size:
            raise self._truncated()
        return octets.toreadonly()

    def write(self, offset: int, data: bytes | memoryview) -> None:
        if os.fstat(self._fd).st_size < self.offset + self.byte_size:
            raise self._truncated()  # writing would make the object grow again
        self._transfer(os.pwritev, memoryview(data), self.offset + offset)

    def _open(self) -> int:
        file_name = self.key.removeprefix("/")
        for prefix in RESERVED:
            if file_name.startswith(prefix):
                raise InvalidRequest(
                    f"cannot register shared memory region '{self.name}' with key '{self.key}' as "
                    f"the key contains the reserved prefix '{prefix}'"
                )
        if not _is_plain(file_name):
            raise self._cannot_open(
                "a key is one name of up to 255 bytes, with or without a '/' before it"
            )
        try:
            fd = os.open(f"{FOLDER}/{file_name}", _FLAGS)
        except OSError as error:
            raise self._cannot_open(error.strerror or str(error)) from error
        try:
            self._check_file(fd)
        except InvalidRequest:
            os.close(fd)
            raise
        return fd

    def _check_file(self, fd: int) -> None:
        """A client may share through us what is ours, or what its owner opened to everybody."""
        found = os.fstat(fd)
        if not stat.S_ISREG(found.st_mode):
            raise self._cannot_open("it is no shared memory object")
        if found.st_uid != os.geteuid() and found.st_mode & _FOR_EVERYBODY != _FOR_EVERYBODY:
            raise self._cannot_open(
                f"it belongs to another user (uid {found.st_uid}, the server runs as "
                f"{os.geteuid()}); create it with mode 0666 to share it"
            )

    def _check_bounds(self) -> None:
        size = os.fstat(self._fd).st_size
        if self.offset < 0 or self.offset + self.byte_size > size:
            raise InvalidRequest(
                self._failed(
                    f"offset {self.offset} + byte_size {self.byte_size} does not lie within the "
                    f"{size} bytes of '{self.key}'"
                )
            )

    def _transfer(self, move: _Move, view: memoryview, position: int) -> int:
        """Read into or write from `view` until it is used up or the object ends; bytes moved."""
        view = view.cast("B") if view.nbytes else view
        moved = 0
        while moved < view.nbytes:
            try:
                step = move(self._fd, [view[moved:]], position + moved)
            except OSError as error:
                raise InvalidRequest(
                    f"shared memory region '{self.name}' cannot be used: {error.strerror}"
                ) from error
            if not step:
                break
            moved += step
        return moved

    def _truncated(self) -> InvalidRequest:
        return InvalidRequest(
            f"shared memory region '{self.name}' has been truncated since it was registered: "
            f"'{self.key}' has {os.fstat(self._fd).st_size} bytes, the region needs "
            f"{self.offset + self.byte_size}; unregister it and register it anew"
        )

    def _failed(self, reason: str) -> str:
        return f"failed to register shared memory region '{self.name}': invalid args: {reason}"

    def _cannot_open(self, reason: str) -> InvalidRequest:
        return InvalidRequest(f"Unable to open shared memory region: '{self.key}': {reason}")


def _is_plain(file_name: str) -> bool:
    """Whether it names a file right in the folder, and can be encoded as such."""
    if not file_name or file_name in (".", "..") or "/" in file_name or "\0" in file_name:
        return False
    try:
        return len(os.fsencode(file_name)) <= _MAX_KEY_BYTES
    except UnicodeEncodeError:
        return False

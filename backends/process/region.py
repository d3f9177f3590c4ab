"""Shared memory between a server and a worker: each side owns the region it writes.

A region is an anonymous memfd: it has no name that could be guessed or left behind, and goes
when the last mapping goes. Its size is sealed, so that a worker cannot shrink it under the
server's feet (SIGBUS). A region that grew too small, or that the reader holds on to, is replaced
by a new one, whose descriptor travels with the next message.
"""

import fcntl
import mmap
import os

import numpy as np

from repository.config.tensors import Array

_SEALS = fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL
_SMALLEST_BYTES = 64 * 1024
INSIDE_BYTES = 16 * 1024
"""Up to here a copy through the socket costs less than a region of its own."""


class RegionWriter:
    """The writing side. Regions double, so their size stays below twice the largest need."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | None = None
        self.region: Array = np.empty(0, np.uint8)
        self._fd = -1

    def reserve(self, size_bytes: int) -> Array:
        """A writable uint8 array of at least `size_bytes`, shared with the reader; what an
        earlier batch wrote is overwritten."""
        if self._memory is None or size_bytes > len(self.region):
            self._replace(max(_SMALLEST_BYTES, 1 << (size_bytes - 1).bit_length()))
        return self.region

    def take_fd(self) -> int:
        """The descriptor of a region the reader has not seen, once, else -1; the caller closes
        it after sending it."""
        fd, self._fd = self._fd, -1
        return fd

    def close(self) -> None:
        """Unmap; the memory goes when the reader unmaps too. What is reserved next lies in a new
        region."""
        if self._fd >= 0:
            os.close(self.take_fd())
        self.region = np.empty(0, np.uint8)
        self._memory = None

    def _replace(self, size_bytes: int) -> None:
        self.close()
        fd = os.memfd_create("modelyard", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            os.ftruncate(fd, size_bytes)
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _SEALS)
            self._memory = mmap.mmap(fd, size_bytes)
        except BaseException:
            os.close(fd)
            raise
        self.region = np.frombuffer(self._memory, np.uint8)
        self._fd = fd


class MessageBuffer:
    """What one message brings along: inside it when small, else in a region of its own that goes
    with its last reader. For a sender that does not wait for an answer."""

    def __init__(self) -> None:
        self._outbox = RegionWriter()
        self._inside: Array | None = None

    def reserve(self, size_bytes: int) -> Array:
        """A writable uint8 array of at least `size_bytes`; call it once."""
        if size_bytes > INSIDE_BYTES:
            return self._outbox.reserve(size_bytes)
        self._inside = np.zeros(size_bytes, np.uint8)
        return self._inside

    def contents(self) -> tuple[bytes, int]:
        """The bytes to put into the message and the descriptor to send with it (-1: none), which
        is the caller's to close."""
        inside = b"" if self._inside is None else self._inside.tobytes()
        return inside, self._outbox.take_fd()


class RegionReader:
    """The reading side."""

    def __init__(self) -> None:
        self._memory: mmap.mmap | bytearray = bytearray()

    def accept(self, fd: int) -> None:
        """Map the region behind `fd` in place of the last one; closes `fd`.

        Raises `ValueError` when it is not sealed as ours are.
        """
        try:
            if fcntl.fcntl(fd, fcntl.F_GET_SEALS) & _SEALS != _SEALS:
                raise ValueError("the shared memory is not sealed")
            self._memory = mmap.mmap(fd, os.fstat(fd).st_size)
        finally:
            os.close(fd)

    def view(self) -> Array:
        """The region as a uint8 array of its own: every array cut from it has it as `base`, so
        that its reference count tells whether anybody still holds one."""
        return np.frombuffer(self._memory, np.uint8)

    def close(self) -> None:
        """Unmap, once the last view has gone."""
        self._memory = bytearray()


def message_region(data: bytes, fd: int) -> Array:
    """What a `MessageBuffer` brought: the bytes inside the message, or the region behind `fd`,
    which is closed and lives as long as arrays cut from it. Raises `ValueError` as
    `RegionReader.accept`."""
    if fd < 0:
        return np.frombuffer(data, np.uint8)
    reader = RegionReader()
    reader.accept(fd)
    return reader.view()

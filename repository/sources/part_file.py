"""A file that is arriving: written in megabytes on a thread, and kept when the transfer ends."""

import os
from pathlib import Path

from repository.sources.names import PART
from repository.sources.threads import finish

_WRITE_BYTES = 1 << 20


class PartFile:
    """`<name>.part` beside the file it will be. Not for several tasks at once."""

    def __init__(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        self._whole = path
        self.path = path.with_name(f"{path.name}{PART}")
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self.path, flags, 0o600)
        self._waiting = bytearray()
        self.size = os.fstat(self._fd).st_size
        """Bytes received so far, those not written yet included."""

    async def add(self, chunk: bytes) -> None:
        self._waiting += chunk
        self.size += len(chunk)
        if len(self._waiting) >= _WRITE_BYTES:
            await finish(self._write)

    async def flush(self) -> None:
        await finish(self._write)

    def empty(self) -> None:
        """Forget all bytes: the file is another one now."""
        self._waiting.clear()
        os.ftruncate(self._fd, 0)
        self.size = 0

    def shorten(self) -> None:
        """Forget the last byte, so that there is one to ask a server for."""
        os.ftruncate(self._fd, self.size - 1)
        self.size -= 1

    def keep(self) -> None:
        """Give it its name; every byte has been flushed and verified."""
        os.replace(self.path, self._whole)

    def close(self) -> None:
        """Write what waits, a megabyte at most, and close; the part stays for a next call."""
        try:
            self._write()
        finally:
            os.close(self._fd)

    def _write(self) -> None:
        waiting, self._waiting = memoryview(bytes(self._waiting)), bytearray()
        while waiting:
            waiting = waiting[os.write(self._fd, waiting) :]

"""Shared memory objects for tests, made without the client's utilities."""

import os
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from pathlib import Path

FOLDER = Path("/dev/shm")
_numbers = count()


@contextmanager
def memory(size: int, content: bytes = b"", mode: int = 0o600) -> Iterator[str]:
    """A shared memory object of `size` bytes that begins with `content`; yields its key."""
    path = FOLDER / f"test-shm-{os.getpid()}-{next(_numbers)}"
    with path.open("wb") as file:
        file.truncate(size)
        file.write(content)
    path.chmod(mode)
    try:
        yield f"/{path.name}"
    finally:
        path.unlink(missing_ok=True)


def bytes_of(key: str) -> bytes:
    return (FOLDER / key[1:]).read_bytes()

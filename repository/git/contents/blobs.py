"""Reads the bytes of files out of a repository: one `git cat-file --batch` for many files."""

import asyncio
import signal
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path
from typing import Any

from repository.git.errors import GitTimedOut, WrongObject
from repository.git.names import is_oid
from repository.git.process import GitProcess, started
from repository.git.quarantine import Quarantine
from repository.git.text import plain_text
from repository.process.pipes import feed

STALL_SECS = 60.0
"""Longest wait for the next bytes of a file."""

_CHUNK_BYTES = 256 * 1024


@asynccontextmanager
async def blobs(repository: Path, quarantine: Quarantine | None = None) -> AsyncIterator["Blobs"]:
    """A reader of files, for one task at a time; leaving the block ends its git."""
    async with started(repository, ("cat-file", "--batch"), quarantine=quarantine) as git:
        yield Blobs(git)


class Blobs:
    """Hands out files by object id. After any error it is of no more use: open another one."""

    def __init__(self, git: GitProcess) -> None:
        self._git = git
        self._broken = False

    async def read(self, oid: str, most_bytes: int) -> bytes:
        """A small file, whole. Raises `WrongObject` when it is larger, `GitTimedOut`."""
        async with aclosing(self._chunks(oid, most_bytes)) as chunks:
            return b"".join([chunk async for chunk in chunks])

    def stream(self, oid: str) -> AsyncGenerator[bytes]:
        """A file's bytes as they come; read it to its end, or close it and open another reader.

        Raises `WrongObject`, `GitTimedOut`.
        """
        return self._chunks(oid)

    async def _chunks(self, oid: str, most_bytes: int | None = None) -> AsyncGenerator[bytes]:
        if self._broken:
            raise WrongObject("this reader has failed before; open another one")
        self._broken = True
        left = await self._ask(oid)
        if most_bytes is not None and left > most_bytes:
            raise WrongObject(f"object {oid} has {left} bytes, of {most_bytes} allowed")
        while left:
            chunk = await self._receive(self._git.stdout.read(min(left, _CHUNK_BYTES)))
            left -= len(chunk)
            yield chunk
        await self._receive(self._git.stdout.readexactly(1))
        self._broken = False

    async def _ask(self, oid: str) -> int:
        """Ask for an object; returns its size in bytes."""
        if not is_oid(oid):
            raise WrongObject(f"'{plain_text(oid, 100)}' is not an object id")
        with suppress(ConnectionError):  # a git that has ended answers nothing
            await feed(self._git.stdin, f"{oid}\n".encode())
        answer = await self._receive(self._git.stdout.readuntil(b"\n"))
        _, kind, *size = answer.decode().split()
        if kind != "blob":
            raise WrongObject(f"object {oid} is {kind}, not a file")
        return int(size[0])

    async def _receive(self, reading: Coroutine[Any, Any, bytes]) -> bytes:
        """The next bytes, at least one. Raises `GitFailed` when git has ended instead."""
        try:
            async with asyncio.timeout(STALL_SECS):
                if received := await reading:
                    return received
        except TimeoutError:
            late = f"no byte within {STALL_SECS:g} s"
            raise GitTimedOut(self._git.command, -signal.SIGTERM, late) from None
        except asyncio.IncompleteReadError:
            pass
        raise self._git.failed(await self._git.ended())

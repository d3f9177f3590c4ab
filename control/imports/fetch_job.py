"""The process that fetches one import, a child of the importer (`control.imports.fetching`).

Libraries of clouds are imported here and nowhere else, below limits of memory and file sizes. It
may be killed at any moment: the next one goes on with what has arrived.

    <folder>/part     what is arriving, with the journal of `repository.sources.fetch`
    <folder>/digest   of what lies in whole, written first
    <folder>/whole    all of it, as it was when its digest was taken
"""

import asyncio
import os
import resource
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from control.imports.fetch_messages import (
    FetchCommand,
    FetchProgress,
    FetchRefused,
    FetchSucceeded,
    decode_command,
    encode,
)
from repository.errors import RepositoryError
from repository.files.durable import delete, lock
from repository.process.parent import connect
from repository.sources.digest import tree
from repository.sources.fetch import fetch
from repository.sources.names import JOURNAL
from repository.sources.progress import Progress
from repository.sources.threads import stoppable
from repository.sources.urls.url import admitted

PART, WHOLE, DIGEST = "part", "whole", "digest"

IN_USE = 75
"""Exit status when another process fetches into the same folder."""

LONGEST_REASON = 4096

_MEMORY_BYTES = 4 << 30
_OPEN_FILES = 256
_NICE = 10


def main(channel_fd: int, parent_pid: int) -> int:
    """The exit status: 0 once it has reported FetchSucceeded or FetchRefused."""
    channel = connect(channel_fd, parent_pid)
    command = decode_command(channel.receive().payload)
    _limit(command.limits.max_bytes)
    try:
        lock(Path(command.folder))  # held until the process ends
    except BlockingIOError:
        return IN_USE

    def report(progress: Progress) -> None:
        channel.send(encode(FetchProgress(progress)))

    channel.send(encode(asyncio.run(_bring(command, report))))
    return 0


async def _bring(
    command: FetchCommand, report: Callable[[Progress], None]
) -> FetchSucceeded | FetchRefused:
    folder = Path(command.folder)
    try:
        digest = await _there(folder)
        if digest is None:
            digest = await _fetched(command, folder, report)
    except (RepositoryError, OSError) as error:
        return FetchRefused(str(error)[:LONGEST_REASON])
    return FetchSucceeded(digest)


async def _there(folder: Path) -> str | None:
    """The digest of what an earlier process has brought whole, None when there is no such thing.

    What cannot be relied on is removed.
    """
    whole, part = folder / WHOLE, folder / PART
    if whole.is_dir():
        found = await stoppable(lambda stop: tree(whole, stop))
        with suppress(FileNotFoundError):
            if (folder / DIGEST).read_text() == found.digest:
                return found.digest
        await asyncio.to_thread(delete, whole)  # the machine lost power before all was written
    if part.is_dir() and not (part / JOURNAL).exists() and any(part.iterdir()):
        await asyncio.to_thread(delete, part)  # ended between its last two steps
    return None


async def _fetched(command: FetchCommand, folder: Path, report: Callable[[Progress], None]) -> str:
    source = admitted(command.url, command.allowed)
    found = await fetch(source, folder / PART, command.limits, report, command.digest or None)
    (folder / DIGEST).write_text(found.digest)
    (folder / PART).rename(folder / WHOLE)
    return found.digest


def _limit(max_bytes: int) -> None:
    os.nice(_NICE)
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_AS: _MEMORY_BYTES,
        resource.RLIMIT_FSIZE: max_bytes,
    }
    for kind, limit in limits.items():
        most = resource.getrlimit(kind)[1]
        bound = limit if most == resource.RLIM_INFINITY else min(limit, most)
        resource.setrlimit(kind, (bound, bound))

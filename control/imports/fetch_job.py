"""The process that fetches one import: `python -m control.imports.fetch_job`.

Libraries of clouds are imported here and nowhere else, below limits of memory and file sizes. It
may be killed at any moment: the next one goes on with what has arrived.

    <folder>/part     what is arriving, with the journal of `repository.sources.fetch`
    <folder>/digest   of what lies in whole, written first
    <folder>/whole    all of it, as it was when its digest was taken
"""

import asyncio
import ctypes
import os
import resource
import signal
import sys
from contextlib import suppress
from pathlib import Path

from control.imports.fetch_messages import (
    FetchCommand,
    FetchRefused,
    FetchSucceeded,
    Said,
    pack_said,
    read_order,
)
from repository.errors import RepositoryError
from repository.files.durable import delete, lock
from repository.sources.allowed import admitted
from repository.sources.digest import tree
from repository.sources.fetch import fetch
from repository.sources.names import JOURNAL
from repository.sources.threads import stoppable

PART, WHOLE, DIGEST = "part", "whole", "digest"

IN_USE = 75
"""Exit status when another process fetches into the same folder."""

LONGEST_REASON = 4096

_MEMORY_BYTES = 4 << 30
_OPEN_FILES = 256
_NICE = 10
_PR_SET_PDEATHSIG = 1


def main() -> int:
    """The exit status: 0 once it has said Done or Refused."""
    order = read_order(sys.stdin.buffer.read())
    _die_with(order.parent)
    _limit(order.limits.max_bytes)
    try:
        lock(Path(order.folder))  # held until the process ends
    except BlockingIOError:
        return IN_USE
    _say(asyncio.run(_bring(order)))
    return 0


async def _bring(order: FetchCommand) -> Said:
    folder = Path(order.folder)
    try:
        digest = await _there(folder)
        if digest is None:
            digest = await _fetched(order, folder)
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


async def _fetched(order: FetchCommand, folder: Path) -> str:
    source = admitted(order.url, order.allowed)
    found = await fetch(source, folder / PART, order.limits, _say, order.digest or None)
    (folder / DIGEST).write_text(found.digest)
    (folder / PART).rename(folder / WHOLE)
    return found.digest


def _say(said: Said) -> None:
    sys.stdout.buffer.write(pack_said(said))
    sys.stdout.buffer.flush()


def _limit(max_bytes: int) -> None:
    os.nice(_NICE)
    limits = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: _OPEN_FILES,
        resource.RLIMIT_AS: _MEMORY_BYTES,
        resource.RLIMIT_FSIZE: max_bytes,
    }
    for kind, wanted in limits.items():
        most = resource.getrlimit(kind)[1]
        bound = wanted if most == resource.RLIM_INFINITY else min(wanted, most)
        resource.setrlimit(kind, (bound, bound))


def _die_with(parent: int) -> None:
    """Go when the importer goes, however it goes."""
    with suppress(AttributeError):  # Linux alone has it
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)


if __name__ == "__main__":
    sys.exit(main())

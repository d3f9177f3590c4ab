"""The process that fetches, as the importer sees it: started, listened to, killed when unwanted."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
from pathlib import Path

from control.imports.fetch_job import IN_USE
from control.imports.fetch_messages import FetchCommand, Said, pack_order, read_said
from repository.errors import RepositoryError
from repository.pipes import feed

_ROOT = str(Path(__file__).resolve().parents[2])


class FetcherDied(RepositoryError):
    """The process ended before it had said how it went; another one may go on."""


@asynccontextmanager
async def fetching(order: FetchCommand) -> AsyncIterator[AsyncIterator[Said]]:
    """What the process says, until Done or Refused; it is gone at the block's end.

    Iterating raises `FetcherDied`.
    """
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-P",  # import nothing from the current folder
        "-m",
        "control.imports.fetch_job",
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        env=_environment(),
        start_new_session=True,  # Ctrl-C is the gateway's to answer
    )
    try:
        async with aclosing(_said(process, order)) as saying:
            yield saying
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await asyncio.shield(process.wait())


def _environment() -> dict[str, str]:
    """Ours, with what clouds' libraries read in it, but without what only this server is told."""
    paths = [_ROOT, *filter(None, [os.environ.get("PYTHONPATH")])]
    kept = {name: text for name, text in os.environ.items() if not name.startswith("MODELYARD_")}
    return {**kept, "PYTHONPATH": os.pathsep.join(paths)}


async def _said(
    process: asyncio.subprocess.Process, order: FetchCommand
) -> AsyncGenerator[Said, None]:
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(ConnectionError):
        await feed(process.stdin, pack_order(order))
    process.stdin.close()
    ended = False
    async for line in process.stdout:
        said = read_said(line)
        yield said
        ended = not hasattr(said, "bytes_done")
    code = await process.wait()
    if not ended:
        raise FetcherDied(_ending(code))


def _ending(code: int) -> str:
    if code == IN_USE:
        return "another process still fetches it"
    if code >= 0:
        return f"the process that fetched it ended with exit code {code}; the server's log has more"
    return f"the process that fetched it died with signal {-code} ({signal.Signals(-code).name})"

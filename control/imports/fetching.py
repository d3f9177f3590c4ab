"""The process that fetches, as the importer sees it: started, listened to, killed when unwanted."""

import os
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress

from control.imports.fetch_job import IN_USE
from control.imports.fetch_messages import (
    MOST_MESSAGE_BYTES,
    FetchCommand,
    FetchProgress,
    FetchReport,
    decode_report,
    encode,
)
from repository.errors import RepositoryError
from repository.process.child import ChildProgram
from repository.process.message_child import MessageChild


class FetcherDied(RepositoryError):
    """The process ended before it had said how it went; another one may go on."""


@asynccontextmanager
async def fetching(command: FetchCommand) -> AsyncIterator[AsyncIterator[FetchReport]]:
    """What the process reports, until FetchSucceeded or FetchRefused; it is gone at
    the block's end.

    Iterating raises `FetcherDied`.
    """
    program = ChildProgram("control.imports.fetch_job", "modelyard fetch", "fetch", _environment())
    process = await MessageChild.start(program)
    try:
        async with aclosing(_reports(process, command)) as reports:
            yield reports
    finally:
        process.kill()
        await process.stop(0)


def _environment() -> dict[str, str]:
    """Ours, with what clouds' libraries read in it, but without what only this server is told."""
    return {name: text for name, text in os.environ.items() if not name.startswith("MODELYARD_")}


async def _reports(
    process: MessageChild, command: FetchCommand
) -> AsyncGenerator[FetchReport, None]:
    with suppress(ConnectionError):
        await process.send(encode(command))
    report: FetchReport | None = None
    with suppress(EOFError, ConnectionError):
        while report is None or isinstance(report, FetchProgress):
            report = decode_report(await process.receive(MOST_MESSAGE_BYTES))
            yield report
        return
    ending = await process.outcome()
    if process.status == IN_USE:
        raise FetcherDied("another process still fetches it")
    raise FetcherDied(f"the process that fetched it {ending}; the server's log may have more")

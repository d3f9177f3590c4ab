"""What a blocking writer writes, piece by piece as it writes it, on a thread behind a pipe.

The pipe is the bound: a writer waits for its reader, and one without a reader ends. Its thread is
not one of those that everybody shares: it stands still for as long as its reader does.
"""

import asyncio
import os
from collections.abc import AsyncGenerator, Callable
from typing import IO

from anyio import CapacityLimiter, to_thread

PIECE_BYTES = 2**20


async def piped(write: Callable[[IO[bytes]], object]) -> AsyncGenerator[bytes]:
    """The bytes that `write` gives to its file. Raises what it raises, after the last piece.

    The caller sees to it that not many write at once.
    """
    reading, writing = os.pipe()
    reader = asyncio.StreamReader(limit=PIECE_BYTES)
    end = os.fdopen(reading, "rb", buffering=0)  # the transport closes it
    transport, _ = await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), end
    )
    task = asyncio.create_task(
        to_thread.run_sync(_write, write, writing, limiter=CapacityLimiter(1))
    )
    try:
        while piece := await reader.read(PIECE_BYTES):
            yield piece
        await task
    finally:
        transport.close()  # a writer that has not ended does so at its next piece
        await asyncio.gather(task, return_exceptions=True)


def _write(write: Callable[[IO[bytes]], object], descriptor: int) -> None:
    with open(descriptor, "wb", buffering=PIECE_BYTES) as out:
        write(out)

"""What a blocking writer writes, read piece by piece, while others have threads of their own."""

import asyncio
from contextlib import aclosing
from typing import IO

import pytest

from control.api.pipe_stream import PIECE_BYTES, piped

pytestmark = pytest.mark.anyio


def _much(out: IO[bytes]) -> None:
    for number in range(8):
        out.write(bytes([number]) * PIECE_BYTES)


async def test_everything_arrives_in_order() -> None:
    found = b"".join([piece async for piece in piped(_much)])

    assert found == b"".join(bytes([number]) * PIECE_BYTES for number in range(8))


async def test_what_the_writer_raises_comes_after_what_it_wrote() -> None:
    def breaks(out: IO[bytes]) -> None:
        out.write(b"some")
        raise ZeroDivisionError

    found = []

    async def read() -> None:
        async for piece in piped(breaks):
            found.append(piece)

    with pytest.raises(ZeroDivisionError):
        await read()
    assert b"".join(found) == b"some"


async def test_readers_that_stand_still_leave_the_shared_threads_to_others() -> None:
    """Pumps and leases run on the loop's own threads; a dozen stopped downloads took them all."""
    readers = [piped(_much) for _ in range(40)]
    try:
        for one in readers:
            assert await anext(one)
        async with asyncio.timeout(60):
            assert await asyncio.to_thread(lambda: "free") == "free"
    finally:
        async with asyncio.timeout(60):
            for one in readers:
                await one.aclose()


async def test_a_writer_whose_reader_went_away_ends() -> None:
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()

    def writes(out: IO[bytes]) -> None:
        try:
            while True:
                out.write(b"x" * PIECE_BYTES)
        finally:
            loop.call_soon_threadsafe(ended.set)

    async with asyncio.timeout(60):
        async with aclosing(piped(writes)) as pieces:
            assert await anext(pieces)
        await ended.wait()

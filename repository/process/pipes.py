"""Writing to a child process that may end at any moment, whichever event loop runs."""

import asyncio


async def feed(stdin: asyncio.StreamWriter, content: bytes) -> None:
    """Write it all. Raises ConnectionError when the child reads no more."""
    if not content:
        return
    try:
        stdin.write(content)
        await stdin.drain()
    except RuntimeError as error:  # uvloop's word for a pipe that it has seen closed
        raise BrokenPipeError(f"the child reads no more: {error}") from error

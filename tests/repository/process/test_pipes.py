"""A child that has ended is a broken pipe to whoever writes to it, on either event loop."""

import asyncio
import sys
from collections.abc import Callable

import pytest
import uvloop

from repository.process.pipes import feed

LOOPS = (asyncio.new_event_loop, uvloop.new_event_loop)


@pytest.mark.parametrize("new_loop", LOOPS)
def test_writing_to_a_child_that_has_ended_is_a_connection_error(
    new_loop: Callable[[], asyncio.AbstractEventLoop],
) -> None:
    async def write_to_the_dead() -> None:
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-c", "", stdin=asyncio.subprocess.PIPE
        )
        assert process.stdin is not None
        await process.wait()
        await feed(process.stdin, b"")
        for _ in range(100):
            await feed(process.stdin, b"x" * 65536)

    with asyncio.Runner(loop_factory=new_loop) as runner, pytest.raises(ConnectionError):
        runner.run(write_to_the_dead())

"""File work beside the event loop, never left running behind a caller that was cancelled."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


async def in_thread(work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
    """Call `work` in a thread; returns or raises only once the thread has let go of its files.

    A caller that is cancelled waits for the end of `work`, which must be short: one chunk.
    """
    # A future, not a task: the end of `asyncio.run` cancels every task there is.
    done = asyncio.get_running_loop().run_in_executor(None, partial(work, *args, **kwargs))
    try:
        return await asyncio.shield(done)
    except asyncio.CancelledError:
        while not done.done():
            with suppress(asyncio.CancelledError):
                await asyncio.wait([done])
        if not done.cancelled():
            done.exception()  # asked for, so that asyncio does not call it forgotten
        raise

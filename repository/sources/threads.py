"""Runs blocking work on a thread without leaving it behind when the waiter is cancelled."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Event
from typing import ParamSpec, TypeVar

Given = ParamSpec("Given")
Result = TypeVar("Result")


async def finish(
    work: Callable[Given, Result], *args: Given.args, **kwargs: Given.kwargs
) -> Result:
    """The work's result; a cancelled caller still waits for its end, so keep it to moments."""
    running = asyncio.ensure_future(asyncio.to_thread(work, *args, **kwargs))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        await _end(running)
        raise


async def stoppable(work: Callable[[Event], Result]) -> Result:
    """As `finish`, for work that takes long and ends soon, by any exception, once Event is set."""
    stop = Event()
    running = asyncio.ensure_future(asyncio.to_thread(work, stop))
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        stop.set()
        await _end(running)
        raise


async def _end(running: "asyncio.Future[Result]") -> None:
    """Wait for the thread however often we are cancelled meanwhile; its files are still in use."""
    while not running.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([running])
    # Read, or asyncio complains that nobody did.
    running.exception()


class Stopped(Exception):
    """Raised by long work when its Event was set; nobody waits for it any more."""

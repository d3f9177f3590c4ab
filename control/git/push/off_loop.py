"""Contexts whose beginning and end touch the disk, entered and left beside the event loop."""

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractContextManager, ExitStack, asynccontextmanager
from typing import TypeVar

from repository.lfs.threads import in_thread

T = TypeVar("T")


@asynccontextmanager
async def held(enter: Callable[[], AbstractContextManager[T]]) -> AsyncIterator[T]:
    """What `enter` makes, until the block ends; it is left for certain, however often the caller
    is cancelled. It may swallow no exception."""
    stack = ExitStack()
    try:
        yield await in_thread(lambda: stack.enter_context(enter()))
    except BaseException as error:
        await in_thread(stack.__exit__, type(error), error, error.__traceback__)
        raise
    else:
        await in_thread(stack.close)

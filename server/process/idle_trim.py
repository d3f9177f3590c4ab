"""Gives the memory that requests have left free back to the system, once no more of them come.

glibc keeps freed blocks below `allocator.MAPPED_BYTES`, and more of them than `KEEP_BYTES` where
something that lives on lies behind. `malloc_trim` returns all, but for the free end of the last
heap of each arena other than the main one: at most 64 MiB for each core but one.
"""

import asyncio
from collections.abc import Awaitable, Callable

from control.series.points import SeriesPoint, SeriesWindow
from server.process.allocator import return_free_memory


class IdleTrim:
    """Of one gateway; a window is ten seconds."""

    def __init__(self, closed: Callable[[SeriesWindow], Awaitable[None]]) -> None:
        """`closed` is given each window first."""
        self._closed = closed
        self._is_due = False

    async def close(self, window: SeriesWindow) -> None:
        """A window has ended; the first one without requests after others had some trims."""
        await self._closed(window)
        if any(_has_requests(row.point) for row in window.rows):
            self._is_due = True
        elif self._is_due:
            self._is_due = False
            await asyncio.to_thread(return_free_memory)


def _has_requests(point: SeriesPoint) -> bool:
    return bool(point.succeeded or point.failed or point.batches or point.pending)

"""Turns at a repository: so many at once, a line of waiters behind them, and an end to the wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path

from repository.git.errors import Busy


@dataclass(slots=True)
class _RepositoryQueue:
    free: asyncio.Semaphore
    users: int = field(default=0)
    waiting: int = field(default=0)


class RepositoryTurns:
    """First come, first served, for each repository by itself; on one loop."""

    def __init__(self, most_at_once: int, most_waiting: int, wait_s: float) -> None:
        self._most_at_once = most_at_once
        self._most_waiting = most_waiting
        self._wait_s = wait_s
        self._lines: dict[Path, _RepositoryQueue] = {}

    @asynccontextmanager
    async def turn(self, repository: Path) -> AsyncIterator[None]:
        """Inside, it is this one's turn. Raises Busy: at once when too many wait already, or when
        none of those before has ended in time."""
        line = self._lines.setdefault(
            repository, _RepositoryQueue(asyncio.Semaphore(self._most_at_once))
        )
        line.users += 1
        try:
            await self._wait(line, repository.stem)
            try:
                yield
            finally:
                line.free.release()
        finally:
            line.users -= 1
            if not line.users:
                del self._lines[repository]

    async def _wait(self, line: _RepositoryQueue, name: str) -> None:
        if line.free.locked() and line.waiting >= self._most_waiting:
            raise Busy(
                f"'{name}' is busy: {self._most_at_once} fetches and pushes are under way and "
                f"{line.waiting} wait; try again in a moment"
            )
        line.waiting += 1
        try:
            async with asyncio.timeout(self._wait_s):
                await line.free.acquire()
        except TimeoutError:
            raise Busy(
                f"'{name}' is busy: none of {self._most_at_once} fetches and pushes ended within "
                f"{self._wait_s:g} s; try again in a moment"
            ) from None
        finally:
            line.waiting -= 1

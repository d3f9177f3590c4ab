"""What a pump waits on between two looks: some time, or somebody who says that there is news."""

import asyncio
from collections.abc import Callable
from contextlib import suppress

IdleSeconds = Callable[[float], float]
"""How long a pump that has nothing to do may rest, which without news of commits rests so many
seconds: see `control.sql.channels`."""


def as_usual(seconds: float) -> float:
    """Where nobody says what is committed."""
    return seconds


class WakeEvent:
    """On the loop. What is set while nobody rests ends the next rest."""

    def __init__(self, idle_s: IdleSeconds = as_usual) -> None:
        self._idle_s = idle_s
        self._rung = asyncio.Event()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._early = False
        """Something was committed before anybody rested; no event is set from another thread."""

    def ring(self) -> None:
        """There is news."""
        self._rung.set()

    def committed(self, _: object = None) -> None:
        """Something was committed, which may be news; from any thread. Fits
        `Database.on_commit`."""
        loop = self._loop
        if loop is None:
            self._early = True
            loop = self._loop  # somebody may have begun to rest before that
        if loop is not None:
            with suppress(RuntimeError):  # the loop has ended
                loop.call_soon_threadsafe(self._rung.set)

    def hush(self) -> None:
        """Whatever was said is not to cut the next rest short."""
        self._early = False
        self._rung.clear()

    async def rest(self, seconds: float) -> None:
        """Until it rings, `seconds` at most."""
        self._loop = asyncio.get_running_loop()
        if self._early:
            self._early = False
            self._rung.set()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()

    async def rest_idle(self, seconds: float) -> None:
        """The same with nothing to do, and longer where commits are told of."""
        await self.rest(self._idle_s(seconds))

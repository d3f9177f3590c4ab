"""What a pump waits on between two looks: some time, or somebody who says that there is news."""

import asyncio
from contextlib import suppress


class WakeEvent:
    """On the loop. What is set while nobody rests ends the next rest."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """There is news."""
        self._rung.set()

    def hush(self) -> None:
        """Whatever was said is not to cut the next rest short."""
        self._rung.clear()

    async def rest(self, seconds: float) -> None:
        """Until it rings, `seconds` at most."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._rung.wait()
        self._rung.clear()

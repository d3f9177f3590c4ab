"""Who may have a version checked now: few at a time, one of each model, and nobody waits long for
a check that takes long.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager


class CheckSlots:
    """`usual` slots; a check that has had one for `slow_s` seconds gives it back and has one of
    `most_slow` others, if any is free. On one event loop."""

    def __init__(self, usual: int, slow_s: float, most_slow: int) -> None:
        self._usual = asyncio.Semaphore(usual)
        self._slow_s = slow_s
        self._slow_left = most_slow
        self._of_model: dict[str, asyncio.Lock] = {}
        self._users: defaultdict[str, int] = defaultdict(int)

    @asynccontextmanager
    async def of(self, model: str) -> AsyncIterator[None]:
        """A slot for one version of this model."""
        self._users[model] += 1
        try:
            async with self._of_model.setdefault(model, asyncio.Lock()):
                await self._usual.acquire()
                slot = _Slot(self)
                timer = asyncio.get_running_loop().call_later(self._slow_s, slot.turn_slow)
                try:
                    yield
                finally:
                    timer.cancel()
                    slot.give_back()
        finally:
            self._users[model] -= 1
            if not self._users[model]:
                del self._users[model], self._of_model[model]

    def take_slow(self) -> bool:
        """Whether one of the slots for slow checks was free; the usual one is given back then."""
        if not self._slow_left:
            return False
        self._slow_left -= 1
        self._usual.release()
        return True

    def give_back(self, slow: bool) -> None:
        if slow:
            self._slow_left += 1
        else:
            self._usual.release()


class _Slot:
    """One check's."""

    def __init__(self, slots: CheckSlots) -> None:
        self._slots = slots
        self._slow = False

    def turn_slow(self) -> None:
        self._slow = self._slots.take_slow()

    def give_back(self) -> None:
        self._slots.give_back(self._slow)

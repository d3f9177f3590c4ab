"""How long the event loop was ever kept from running: the measure of our own promise.

A timer is due every `INTERVAL_S`; how late it runs is how long something held the loop, short by
at most one interval. One tick costs a few µs.
"""

import asyncio
from collections import deque
from time import monotonic

INTERVAL_S = 0.01
RECENT_S = 60.0
_SLICE_S = 5.0


class LoopLag:
    """The worst stalls of the running loop, in seconds. All methods belong to its thread.

    `last_seconds`: of the latest tick. `max_seconds`: since `restart`. `recent_max_seconds`: over
    the last minute (whole slices of five seconds, so up to 65 s). `take_us`: the worst since it
    was last called.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._slices: deque[float] = deque([0.0], maxlen=int(RECENT_S / _SLICE_S) + 1)
        self._slice_ends = monotonic() + _SLICE_S
        self._due = monotonic() + INTERVAL_S
        self._timer = self._loop.call_later(INTERVAL_S, self._tick)
        self.last_seconds = 0.0
        self.max_seconds = 0.0
        self._untaken = 0.0

    @property
    def recent_max_seconds(self) -> float:
        return max(self._slices)

    def restart(self) -> None:
        """Forget what was: called when the server becomes ready for the first time."""
        self.max_seconds = 0.0
        self._slices.clear()
        self._slices.append(0.0)

    def take_us(self) -> int:
        worst, self._untaken = self._untaken, 0.0
        return round(worst * 1e6)

    def stop(self) -> None:
        self._timer.cancel()

    def _tick(self) -> None:
        now = monotonic()  # uvloop's own clock only moves once per turn
        late = max(0.0, now - self._due)
        self.last_seconds = late
        self.max_seconds = max(self.max_seconds, late)
        self._untaken = max(self._untaken, late)
        if now >= self._slice_ends:
            self._slice_ends = now + _SLICE_S
            self._slices.append(0.0)
        self._slices[-1] = max(self._slices[-1], late)
        self._due = now + INTERVAL_S
        self._timer = self._loop.call_later(INTERVAL_S, self._tick)

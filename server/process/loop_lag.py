"""How long the event loop was ever kept from running: the measure of our own promise.

A timer is due every `INTERVAL_S`; how late it runs is how long something held the loop, short by
at most one interval. One tick costs some µs of a busy loop and 0.1 ms of a sleeping one, so that
without work ticks are `RESTING_S` apart: what begins work says so, or the thread's clock does.
"""

import asyncio
from collections import deque
from time import monotonic, thread_time

INTERVAL_S = 0.01
RESTING_S = 1.0
BUSY_SHARE = 0.05
"""Of a core that the loop's thread takes, ticks included, for there to be work."""

RECENT_S = 60.0
_SLICE_S = 5.0
_SLICES = int(RECENT_S / _SLICE_S) + 1


class LoopActivity:
    """Whom bytes that arrive are told of. `resting`: whether to `wake` it."""

    resting = False

    def wake(self) -> None:
        """There is work."""


class TickPace:
    """How soon the next tick is due, by the clock and the CPU time of the loop's thread. Pure."""

    def __init__(self, now: float, cpu_s: float) -> None:
        self.begin(now, cpu_s)

    def begin(self, now: float, cpu_s: float) -> None:
        """There is work: ticks are close together, for `RESTING_S` at least."""
        self.resting = False
        self._since, self._cpu_s = now, cpu_s

    def following_s(self, now: float, cpu_s: float) -> float:
        """From a tick to the next one."""
        passed = now - self._since
        if passed >= RESTING_S:
            self.resting = cpu_s - self._cpu_s < BUSY_SHARE * passed
            self._since, self._cpu_s = now, cpu_s
        return RESTING_S if self.resting else INTERVAL_S


class LoopLag(LoopActivity):
    """The worst stalls of the running loop, in seconds. All methods belong to its thread.

    `max_seconds`: since `restart`. `recent_max_seconds`: over the last minute (whole slices of five
    seconds, so up to 65 s). `take_us`: the worst since it was last called.
    """

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._slices: deque[float] = deque([0.0], maxlen=_SLICES)
        self._slice_ends = monotonic() + _SLICE_S
        self.max_seconds = 0.0
        self._untaken = 0.0
        self._pace = TickPace(monotonic(), thread_time())
        self._tick_again(monotonic(), INTERVAL_S)

    @property
    def recent_max_seconds(self) -> float:
        self._turn_slices(monotonic())
        return max(self._slices)

    def wake(self) -> None:
        if self.resting:
            self._timer.cancel()
            now = monotonic()
            self._pace.begin(now, thread_time())
            self._tick_again(now, INTERVAL_S)

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
        self.max_seconds = max(self.max_seconds, late)
        self._untaken = max(self._untaken, late)
        self._turn_slices(now)
        self._slices[-1] = max(self._slices[-1], late)
        self._tick_again(now, self._pace.following_s(now, thread_time()))

    def _tick_again(self, now: float, seconds: float) -> None:
        self.resting = self._pace.resting
        self._due = now + seconds
        self._timer = self._loop.call_later(seconds, self._tick)

    def _turn_slices(self, now: float) -> None:
        """Begin a slice for each `_SLICE_S` that have passed."""
        passed = max(0, int((now - self._slice_ends) // _SLICE_S) + 1)
        self._slice_ends += passed * _SLICE_S
        self._slices.extend([0.0] * min(passed, _SLICES))

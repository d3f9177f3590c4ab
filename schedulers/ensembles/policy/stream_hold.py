"""When a decoupled step is read no further, because the steps behind it are slower. Pure.

Holding a stream back also holds its model's instance. Where the steps behind wait for that model in
turn, in another ensemble or for another request, nobody would ever go on; so a stream that was held
back for a while in vain is read on, within a bound.
"""

from enum import Enum
from typing import NamedTuple

MOST_BEHIND = 16
"""Calls that wait for their turn (`max_inflight_requests`) behind a stream that is read on."""

PATIENCE_NS = 1_000_000_000
"""How long a stream is held back while no call of its request ends."""

MOST_HELD, MOST_HELD_BYTES = 1024, 64 << 20
"""Calls that may wait behind a stream that is read on after that, and bytes of their tensors."""

STUCK_NS = 60_000_000_000
"""How long a stream stands still at these bounds before its request fails, while no instance works
on a call behind it."""


class Backlog(NamedTuple):
    """The calls behind a stream that wait for their turn: how many, and bytes of the responses and
    of what was made of them that are kept for these calls."""

    calls: int
    size_bytes: int


class HoldVerdict(Enum):
    READ = "read"
    WAIT = "wait"
    FULL = "full"
    """Wait: as much as may be is held."""


class StreamHold:
    """Of one stream."""

    __slots__ = ("_executed_ns", "_progress", "_since_ns")

    def __init__(self) -> None:
        self._progress = -1
        self._since_ns = 0
        self._executed_ns = 0

    def decide(self, waiting: Backlog, progress: int, now_ns: int) -> HoldVerdict:
        """`waiting`: behind the stream; `progress`: calls of its request that have ended so far."""
        if waiting.calls < MOST_BEHIND:
            self._progress = -1
            return HoldVerdict.READ
        if progress != self._progress:
            self._progress, self._since_ns = progress, now_ns
        idle_ns = now_ns - self._since_ns
        if idle_ns < PATIENCE_NS:
            return HoldVerdict.WAIT
        if waiting.calls < MOST_HELD and waiting.size_bytes < MOST_HELD_BYTES:
            return HoldVerdict.READ
        return HoldVerdict.FULL

    def is_stuck(self, executing: bool, now_ns: int) -> bool:
        """Of one that is full: whether nothing goes on behind it. `executing`: an instance works on
        a call behind the stream now, however long that takes."""
        if executing:
            self._executed_ns = now_ns
        return now_ns - max(self._since_ns, self._executed_ns) >= STUCK_NS

    def excuse(self) -> None:
        """That nothing goes on is the client's doing, who reads no further."""
        self._progress = -1

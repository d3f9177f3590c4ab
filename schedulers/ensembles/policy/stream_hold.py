"""When a decoupled step is read no further, because the steps behind it are slower. Pure.

Holding a stream back also holds its model's instance. Where the steps behind wait for that model in
turn, in another ensemble or for another request, nobody would ever go on; so a stream that was held
back for a while in vain is read on, within a bound.
"""

from enum import Enum

MOST_BEHIND = 16
"""Calls that wait for their turn (`max_inflight_requests`) behind a stream that is read on."""

PATIENCE_NS = 1_000_000_000
"""How long a stream is held back while no call of its request ends."""

MOST_HELD, MOST_HELD_BYTES = 1024, 64 << 20
"""Calls that may wait behind a stream that is read on after that, and bytes read so."""

STUCK_NS = 60_000_000_000
"""How long a stream stands still at these bounds before its request fails."""


class HoldVerdict(Enum):
    READ = "read"
    WAIT = "wait"
    FAIL = "fail"


class StreamHold:
    """Of one stream."""

    __slots__ = ("_bytes", "_progress", "_since_ns")

    def __init__(self) -> None:
        self._progress = -1
        self._since_ns = 0
        self._bytes = 0

    def decide(self, waiting: int, progress: int, now_ns: int) -> HoldVerdict:
        """`waiting`: calls behind the stream that wait for their turn; `progress`: calls of its
        request that have ended so far."""
        if waiting < MOST_BEHIND:
            self._progress = -1
            return HoldVerdict.READ
        if progress != self._progress:
            self._progress, self._since_ns, self._bytes = progress, now_ns, 0
        idle_ns = now_ns - self._since_ns
        if idle_ns < PATIENCE_NS:
            return HoldVerdict.WAIT
        if waiting < MOST_HELD and self._bytes < MOST_HELD_BYTES:
            return HoldVerdict.READ
        return HoldVerdict.FAIL if idle_ns >= STUCK_NS else HoldVerdict.WAIT

    def was_read(self, size_bytes: int) -> None:
        """One more response."""
        self._bytes += size_bytes

    def excuse(self) -> None:
        """That nothing goes on is the client's doing, who reads no further."""
        self._progress = -1

"""Who keeps the server waiting for too long, while it holds memory for him. Pure.

`server.http2.timeouts` looks at every open stream now and then, and hands over what each waits
for. Progress is a minimum rate, not a deadline for the whole: a large message takes its time, and
one byte now and then is no progress.
"""

from collections.abc import Hashable, Mapping
from typing import NamedTuple

SLOWEST_BYTES_PER_S = 1024
"""What comes or is taken slower than this is late."""
LONGEST_S = 3600.0
"""And what would take longer than this at its rate: memory is not lent for days."""


class PeerWait(NamedTuple):
    """What only the client can bring on.

    `what`: another one begins another wait; `size`: bytes that are held for it; `missing`: bytes
    that would end it; `moved`: bytes that have come or gone, counted from anywhere.
    """

    what: str
    size: int
    missing: int
    moved: int


BEGINS = PeerWait("begin", 0, 2**62, 0)
"""For the first byte of a request; other requests of the connection may come before it, and
`server.http2.timeouts` counts them as progress."""
ENDS = PeerWait("end", 0, 1, 0)
"""For the end of a request that has all its bytes."""


class _WaitRecord(NamedTuple):
    first: PeerWait
    waited_s: float


class StallDetector:
    """Remembers, from look to look, since when each key is waited for."""

    def __init__(self, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._since: dict[Hashable, _WaitRecord] = {}

    def look(self, waits: Mapping[Hashable, PeerWait], passed_s: float) -> list[Hashable]:
        """The keys that made too little progress for `timeout_s`; `passed_s` since the last look.

        The caller says how much time counts: a server that was stopped has kept itself waiting.
        """
        before, self._since = self._since, {}
        late = []
        for key, now in waits.items():
            since = before.get(key)
            if since is None or has_moved(since.first, now, self._timeout_s):
                self._since[key] = _WaitRecord(now, 0.0)
            elif since.waited_s + passed_s >= self._timeout_s:
                late.append(key)
            else:
                self._since[key] = since._replace(waited_s=since.waited_s + passed_s)
        return late


def has_moved(first: PeerWait, now: PeerWait, timeout_s: float) -> bool:
    """Whether between the two something else began, or the share of one timeout came."""
    if now.what != first.what:
        return True
    rate = max(SLOWEST_BYTES_PER_S, first.size / LONGEST_S)
    return now.moved - first.moved >= min(first.missing, rate * timeout_s)

"""Which version saw a sequence's start: the rest of it goes there, whatever the weights are."""

from collections import OrderedDict
from typing import NamedTuple

from schedulers.request import Sequence
from server.routing.table import Target

MOST = 100_000
"""Sequences remembered; the one that was silent longest is forgotten first."""

IDLE_S = 600.0
"""A sequence that was silent for longer begins anew."""


class _Seen(NamedTuple):
    target: Target
    at: float


class Sequences:
    """On the loop's thread; `now` is on `time.monotonic`."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._seen: OrderedDict[tuple[str, int | str], _Seen] = OrderedDict()

    def stay(self, target: Target, sequence: Sequence, now: float) -> Target:
        """Where a request belongs whose route says `target`."""
        key = (target.route, sequence.key)
        seen = self._seen.pop(key, None)
        if seen is not None and not sequence.start and now - seen.at <= IDLE_S:
            same = seen.target.key == target.key
            target = target._replace(lot=None) if same else seen.target  # chance had its say before
        if not sequence.end:
            self._seen[key] = _Seen(target._replace(mirrors=(), lot=None), now)
            if len(self._seen) > self._most:
                self._seen.popitem(last=False)
        return target

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
            if seen.target.key != target.key:
                target = seen.target
            elif target.lot is not None:  # chance had its say before
                target = target.again()
                target.lot = None
        if not sequence.end:
            stays = target.again()
            stays.mirrors, stays.lot = (), None
            self._seen[key] = _Seen(stays, now)
            if len(self._seen) > self._most:
                self._seen.popitem(last=False)
        return target

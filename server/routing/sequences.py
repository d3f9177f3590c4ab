"""Which version saw a sequence's start: the rest of it goes there, whatever the weights are.
Pure."""

from collections import OrderedDict
from typing import NamedTuple

from schedulers.request import Sequence
from server.routing.table import Target

MOST = 100_000
"""Sequences remembered; the one that was silent longest is forgotten first."""

IDLE_S = 600.0
"""A sequence that was silent for longer begins anew."""


class _SequenceTarget(NamedTuple):
    target: Target
    at: float


class Sequences:
    """On the loop's thread; `now` is on `time.monotonic`."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self.targets: OrderedDict[tuple[str, int | str], _SequenceTarget] = OrderedDict()
        """By route and key. While it is empty, no request need be read for its sequence."""

    def find(self, target: Target, sequence: Sequence, now: float) -> Target:
        """Where a request of `sequence` belongs whose route says `target`."""
        entry = self.targets.get((target.route, sequence.key))
        if entry is None or sequence.start or now - entry.at > IDLE_S:
            return target
        if entry.target.key != target.key:
            return entry.target
        if target.assignment is not None:  # chance had its say before
            target = target.again()
            target.assignment = None
        return target

    def keep(self, target: Target, sequence: Sequence, now: float) -> Target | None:
        """Remember that a request of it went to `target`; forget it with its end. The other target
        of which the same was remembered, None where there is none, or the sequence was silent for
        so long that what lives there by now may be another's."""
        key = (target.route, sequence.key)
        before = self.targets.pop(key, None)
        if not sequence.end:
            stays = target.again()
            stays.mirrors, stays.assignment = (), None
            self.targets[key] = _SequenceTarget(stays, now)
            if len(self.targets) > self._most:
                self.targets.popitem(last=False)
        if before is None or before.target.key == target.key or now - before.at > IDLE_S:
            return None
        return before.target

"""Which units have met which arm of an experiment: each told once, in batches, over the link."""

from collections import OrderedDict
from collections.abc import Iterator

from control.gateways.messages import ExposureRow, Exposures
from server.routing.table import UnitExposure

MOST_REMEMBERED = 200_000
"""Units that are not told of again; the control process counts each once whatever it is told."""

MOST_WAITING, AT_ONCE = 20_000, 2_000
"""Units that wait to be told of, and how many go in one frame."""

RETELL_S = 600.0
"""What was told so long ago is told again when it is seen: it may have been lost on the way."""


class ExposureBuffer:
    """One gateway's; on the loop's thread. `now` is in seconds since the epoch."""

    def __init__(self, remembered: int = MOST_REMEMBERED, waiting: int = MOST_WAITING) -> None:
        self._most_remembered = remembered
        self._most_waiting = waiting
        self._last_sent: OrderedDict[UnitExposure, float] = OrderedDict()
        self._waiting: list[ExposureRow] = []
        self.dropped = 0

    def note(self, exposure: UnitExposure, now: float) -> None:
        at = self._last_sent.get(exposure)
        if at is not None and now - at < RETELL_S:
            return
        if len(self._waiting) >= self._most_waiting:
            self.dropped += 1  # it is told of when it is seen again
            return
        self._last_sent[exposure] = now
        self._last_sent.move_to_end(exposure)
        if len(self._last_sent) > self._most_remembered:
            self._last_sent.popitem(last=False)
        self._waiting.append(ExposureRow(*exposure, now))

    def messages(self) -> Iterator[Exposures]:
        """What waits; what was yielded is forgotten when the next one is asked for, so that a
        message that could not be sent is sent again."""
        while self._waiting:
            rows = self._waiting[:AT_ONCE]
            yield Exposures(tuple(rows))
            del self._waiting[: len(rows)]

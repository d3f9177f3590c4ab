"""The end of a stop: requests have most of the exit timeout, closing the rest, and then it is over.

`server.gateway` starts it with the stop; nothing that hangs, the event loop included, keeps the
process beyond it.
"""

import logging
import threading
from collections.abc import Callable, Iterable

from server.process.immediate_exit import leave_now

CLOSING_SECS = 5.0
"""What models have at least to finalize, of an exit timeout long enough for it."""
_CLOSING_SHARE = 0.2
LEAST_SECS = 10.0
"""However short the exit timeout is, closing in order has this long."""

_log = logging.getLogger(__name__)


def draining_secs(exit_timeout_secs: float) -> float:
    """How long requests may go on after the signal."""
    return exit_timeout_secs - min(CLOSING_SECS, _CLOSING_SHARE * exit_timeout_secs)


class ExitDeadline:
    """Ends the process with status 1 unless `cancel` comes first.

    `unfinished()`: what has not ended, in words; called from a thread of its own.
    """

    def __init__(self, exit_timeout_secs: float, unfinished: Callable[[], Iterable[str]]) -> None:
        self._setting = f"--exit-timeout-secs={exit_timeout_secs:g}"
        self._unfinished = unfinished
        self._timer = threading.Timer(max(exit_timeout_secs, LEAST_SECS), self._leave)
        self._timer.name, self._timer.daemon = "exit-deadline", True
        self._timer.start()

    def cancel(self) -> None:
        """Everything has ended."""
        self._timer.cancel()

    def _leave(self) -> None:
        try:
            names = "; ".join(self._unfinished()) or "no model"
        except RuntimeError:  # it changed while it was read
            names = "models"
        _log.error("%s exceeded; still running: %s; exiting now", self._setting, names)
        leave_now(1)

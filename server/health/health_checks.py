"""Judges the versions whenever a window ends, tells of it, and keeps it on the disk each minute."""

import asyncio
import logging
import time
from collections.abc import Callable
from pathlib import Path

from control.series.points import SeriesWindow
from server.health import kept
from server.health.kept import KeptHealth
from server.health.monitor import HealthMonitor
from server.health.policy import HealthBounds
from server.settings.health import HealthSettings

KEEP_EVERY_S = 60.0


def bounds_of(settings: HealthSettings) -> HealthBounds:
    return HealthBounds(
        settings.health_error_rate,
        settings.health_least_requests,
        settings.health_slow_factor,
        settings.health_queue_secs,
        settings.health_crashes,
    )


_log = logging.getLogger(__name__)


class HealthChecks:
    """One gateway's. `changed` is called when every version was judged."""

    def __init__(
        self, monitor: HealthMonitor, state_dir: Path, changed: Callable[[], None]
    ) -> None:
        self._monitor = monitor
        self._state_dir = state_dir
        self._changed = changed
        self._kept = KeptHealth()
        self._due_at = time.monotonic() + KEEP_EVERY_S

    async def close(self, window: SeriesWindow) -> None:
        """A window has ended."""
        for _ in self._monitor.close(window, time.time()):
            await asyncio.sleep(0)  # requests go first
        self._changed()
        if time.monotonic() >= self._due_at:
            await self.keep()

    async def keep(self) -> None:
        """Have the disk know what is known."""
        self._due_at = time.monotonic() + KEEP_EVERY_S
        now = self._monitor.kept()
        if now == self._kept:
            return
        try:
            await asyncio.to_thread(kept.write, self._state_dir, now)
            self._kept = now
        except OSError as error:
            _log.warning("the health of versions cannot be kept: %s", error)

"""The pump of time series: writes down the windows that gateways send, makes chunks of old ones.

Those of an idle server wait to be written together, where one server has the database to itself.
"""

import asyncio
import logging

from control.errors import ControlError, DatabaseGone
from control.series import recording
from control.series.held import HeldWindows
from control.series.points import SeriesStored, SeriesWindow
from control.sql.database import Actor, Database

SEAL_S = 60.0
"""Between two looks at what can be sealed."""

PAUSE_S = 1.0
"""Between two stretches that are sealed: others write, too."""

AT_ONCE = 32
"""Windows that wait for the database; what comes beyond is not answered, and is sent again."""

_log = logging.getLogger(__name__)


class SeriesRecorder:
    """On the loop. `server`: whose windows are sealed here."""

    def __init__(self, database: Database, server: str) -> None:
        self._database = database
        self._server = server
        self._actor = Actor(f"server:{server}", "system")
        self._held = HeldWindows()
        self._turn = asyncio.Lock()
        """One writes at a time: a database that hangs keeps one thread, and others have theirs."""
        self._storing: dict[tuple[str, int, str], asyncio.Task[SeriesStored | None]] = {}

    async def record(self, window: SeriesWindow) -> SeriesStored | None:
        """Store it; None where that cannot be done now. One that is sent again meanwhile waits for
        the same."""
        if self._database.is_sqlite and self._held.hold(window):
            return SeriesStored(window.at, window.boot)
        key = (window.server, window.at, window.boot)
        storing = self._storing.get(key)
        if storing is None:
            if len(self._storing) >= AT_ONCE:
                return None
            storing = self._storing[key] = asyncio.create_task(self._write(window))
            storing.add_done_callback(lambda _: self._storing.pop(key))
        return await asyncio.shield(storing)

    async def _write(self, window: SeriesWindow) -> SeriesStored | None:
        try:
            async with self._turn:
                await asyncio.to_thread(self._store, window)
        except DatabaseGone as error:
            _log.debug("time series are blocked: %s", error)
            return None
        except ControlError as error:
            _log.error("a window of time series is dropped: %s", error)
        return SeriesStored(window.at, window.boot)

    async def run(self) -> None:
        """Until cancelled. Not at once: gateways have windows that are to be stored before."""
        pause_s = SEAL_S
        try:
            while True:
                await asyncio.sleep(pause_s)
                pause_s = SEAL_S
                try:
                    if await asyncio.to_thread(self._seal):
                        pause_s = PAUSE_S
                except DatabaseGone as error:
                    _log.debug("time series are blocked: %s", error)
                except ControlError as error:
                    _log.error("time series cannot be sealed: %s", error)
        finally:
            await asyncio.shield(asyncio.to_thread(self.write_held))

    def write_held(self) -> None:
        """Write what waits, for somebody who is about to read; blocks. What cannot be written goes
        on waiting."""
        if self._held.waiting():
            try:
                self._store()
            except ControlError as error:
                _log.debug("time series are blocked: %s", error)

    def _store(self, *windows: SeriesWindow) -> None:
        waiting = self._held.waiting()
        with self._database.change(self._actor) as tx:
            recording.store(tx, *waiting, *windows)
        self._held.written(waiting)

    def _seal(self) -> int:
        with self._database.change(self._actor) as tx:
            overdue = self._held.overdue(tx.now.timestamp())
            if overdue:
                recording.store(tx, *overdue)
            sealed = recording.seal(tx, self._server)
        self._held.written(overdue)
        return sealed

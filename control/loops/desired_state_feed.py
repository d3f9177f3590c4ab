"""The desired state, read anew whenever its number has grown, on whichever server it grew."""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress

from sqlalchemy import select

from control.clock import utc_now
from control.desired import DesiredState
from control.desired_rows import desired
from control.errors import DatabaseGone
from control.sql.database import Database
from control.tables import Counter

POLL_S, NET_S = 0.25, 5.0
"""Between two looks at the number where other servers' changes are not notified, and where all are:
then a look is only the net below. Our own changes wake it."""

RETRY_S = 1.0

_log = logging.getLogger(__name__)


class DesiredStateFeed:
    """Gives each new desired state to all who `follow`; on the loop's thread, and made there."""

    def __init__(self, database: Database, complete: Callable[[], bool] = lambda: False) -> None:
        """`complete` says whether whoever changes it wakes us now."""
        self._database = database
        self._complete = complete
        self._followers: list[Callable[[DesiredState], None]] = []
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._revision = -1
        self.answering = True

    def follow(self, hand: Callable[[DesiredState], None]) -> None:
        """Call it with each new desired state; brief, and before `run`."""
        self._followers.append(hand)

    def wake(self) -> None:
        """Look now: something has been committed here."""
        self._wake.set()

    def committed(self, desired: bool) -> None:
        """From any thread, after a commit of this process: look now if it `desired` anything. Fits
        `Database.on_commit`."""
        if desired:
            with suppress(RuntimeError):  # the loop has ended
                self._loop.call_soon_threadsafe(self._wake.set)

    async def run(self) -> None:
        """Until cancelled. A database that is gone costs nothing but news."""
        while True:
            pause_s = NET_S if self._complete() else POLL_S
            try:
                found = await asyncio.to_thread(self._look)
                if found is not None:
                    self._revision = found.revision
                    for hand in self._followers:
                        hand(found)
                self._say(True, "")
            except DatabaseGone as error:
                self._say(False, str(error))
                pause_s = RETRY_S
            await self._pause(pause_s)

    def _look(self) -> DesiredState | None:
        with self._database.reading() as session:
            number = session.scalar(select(Counter.value).where(Counter.name == "desired"))
            if number == self._revision:
                return None
            return desired(session, utc_now())

    def _say(self, answering: bool, why: str) -> None:
        if answering != self.answering:
            self.answering = answering
            if answering:
                _log.info("the database %s answers again", self._database.name)
            else:
                _log.error("%s; gateways serve what they have, and changes wait", why)

    async def _pause(self, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._wake.wait()
        except TimeoutError:
            pass
        self._wake.clear()

"""The desired state, read anew whenever its number has grown, on whichever server it grew."""

import asyncio
import logging
from collections.abc import Callable

from sqlalchemy import select

from control.clock import utc_now
from control.desired import DesiredState
from control.desired_rows import desired
from control.errors import DatabaseGone
from control.loops.wake_event import IdleSeconds, WakeEvent, as_usual
from control.sql.database import Database
from control.tables import Counter

POLL_S = 0.25
"""Between two looks at the number where other servers' changes are not notified. Our own wake
it."""

RETRY_S = 1.0

_log = logging.getLogger(__name__)


class DesiredStateFeed:
    """Gives each new desired state to all who `follow`; on the loop's thread, and made there.
    `idle_s` says how long to rest between two looks."""

    def __init__(self, database: Database, idle_s: IdleSeconds = as_usual) -> None:
        self._database = database
        self._followers: list[Callable[[DesiredState], None]] = []
        self._news = WakeEvent(idle_s)
        self._revision = -1
        self.answering = True

    def follow(self, hand: Callable[[DesiredState], None]) -> None:
        """Call it with each new desired state; brief, and before `run`."""
        self._followers.append(hand)

    def wake(self) -> None:
        """Look now: something has been committed here."""
        self._news.ring()

    def committed(self, desired: bool) -> None:
        """From any thread, after a commit of this process: look now if it `desired` anything. Fits
        `Database.on_commit`."""
        if desired:
            self._news.committed()

    async def run(self) -> None:
        """Until cancelled. A database that is gone costs nothing but news."""
        while True:
            try:
                found = await asyncio.to_thread(self._look)
                if found is not None:
                    self._revision = found.revision
                    for hand in self._followers:
                        hand(found)
                self._say(True, "")
                await self._news.rest_idle(POLL_S)
            except DatabaseGone as error:
                self._say(False, str(error))
                await self._news.rest(RETRY_S)

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

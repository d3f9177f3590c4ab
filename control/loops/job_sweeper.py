"""The pump of jobs: has workers told of those that wait, and takes back those whose worker is gone.

Any number of servers may run one; `control.jobs.sweeper` sees to it that they do not repeat each
other.
"""

import asyncio
import logging
from collections.abc import Callable, Sequence

from control.errors import ControlError, DatabaseGone
from control.jobs.sweeper import due
from control.jobs.unfinished import work_left
from control.jobs.views import DueJob
from control.loops.wake_event import IdleSeconds, WakeEvent, as_usual
from control.sql.database import Database

BUSY_S, IDLE_S = 1.0, 10.0
"""Between two looks while jobs are unfinished, and while there is none and not all that is
committed rings."""
PATIENCE_S = 30.0
"""After a time in which the database did not answer: no job is taken back so long, since its worker
could not renew its claim either."""

_log = logging.getLogger(__name__)


class JobSweeper:
    """On the loop. `send` tells workers, on a thread. `hear_work` is told, at each look, how many
    jobs of `queues` wait for a worker or have one."""

    def __init__(
        self,
        database: Database,
        queues: Sequence[str],
        send: Callable[[Sequence[DueJob]], None],
        hear_work: Callable[[int], None],
        idle_s: IdleSeconds = as_usual,
    ) -> None:
        self._database = database
        self._queues = queues
        self._send = send
        self._hear_work = hear_work
        self._loop = asyncio.get_running_loop()
        self._wake = WakeEvent(idle_s)
        self.committed = self._wake.committed
        self._reclaim_at = 0.0

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            pause_s, rest = IDLE_S, self._wake.rest
            try:
                left = await asyncio.to_thread(self._look)
                self._hear_work(left)
                if left:
                    pause_s = BUSY_S
                else:
                    rest = self._wake.rest_idle
            except DatabaseGone as error:
                self._reclaim_at = self._loop.time() + PATIENCE_S
                _log.debug("jobs are blocked: %s", error)
            except ControlError as error:
                _log.error("jobs cannot be looked after: %s", error)
            await rest(pause_s)

    def _look(self) -> int:
        with self._database.reading() as session:
            left = work_left(session, self._queues)
        may_reclaim = self._loop.time() >= self._reclaim_at
        if jobs := due(self._database, reclaim=may_reclaim):
            self._send(jobs)
        return left

"""Offline jobs as the control process looks after them: workers are told, and one is kept here."""

import asyncio
import logging
from collections.abc import Sequence
from typing import TYPE_CHECKING

from control.jobs.views import DueJob
from control.loops.job_sweeper import JobSweeper
from control.loops.wake_event import IdleSeconds
from control.sql.database import Database
from server.control_process.job_child import JobWorkerChild
from server.job_worker.folders import broker_folder, clear_scratch, scratch_shelf
from server.settings.table import Settings

if TYPE_CHECKING:
    from jobs.worker.sender import JobSender


_log = logging.getLogger(__name__)


class JobPumps:
    """On the loop."""

    def __init__(
        self,
        settings: Settings,
        server: str,
        database: Database,
        idle_s: IdleSeconds,
    ) -> None:
        self._settings = settings
        self._child = JobWorkerChild(settings, server)
        self._sweeper = JobSweeper(
            database, settings.job_queue, self._send, self._child.hear_work, idle_s
        )
        self._sender: JobSender | None = None
        self.committed = self._sweeper.committed

    async def run(self) -> None:
        """Until cancelled."""
        await asyncio.to_thread(clear_if_possible, self._settings)
        try:
            async with asyncio.TaskGroup() as pumps:
                pumps.create_task(self._sweeper.run())
                if self._settings.job_worker == "on":
                    pumps.create_task(self._child.run())
        finally:
            if self._sender is not None:
                self._sender.close()

    def _send(self, jobs: Sequence[DueJob]) -> None:
        if self._sender is None:
            self._sender = _sender(self._settings)
        self._sender.send(jobs)


def clear_if_possible(settings: Settings) -> None:
    """Remove what jobs that were killed have left, or say why not: on a disk with an error the
    control process has other work to do, and a job that needs a folder there is told of it."""
    try:
        clear_scratch(settings)
    except OSError as error:
        _log.warning(
            "what jobs that were killed have left in '%s' cannot be removed: %s",
            scratch_shelf(settings),
            error.strerror,
        )


def _sender(settings: Settings) -> "JobSender":
    """Celery takes memory and a second, which a server without jobs does not need."""
    from jobs.worker.broker import broker_of
    from jobs.worker.sender import JobSender

    return JobSender(broker_of(settings.job_broker, broker_folder(settings)))

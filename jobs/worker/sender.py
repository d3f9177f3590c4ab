"""Tell workers of jobs, through the broker. Blocks; on one thread at a time."""

import contextlib
import logging
from collections.abc import Iterable

from celery import Celery
from kombu.exceptions import OperationalError

from control.jobs.views import DueJob
from jobs.worker.broker import TASK, Broker, celery_app, job_queue

_log = logging.getLogger(__name__)
_TRIES = {"max_retries": 1, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.2}


class JobSender:
    """Sends ids of jobs. What cannot be sent is sent again by the sweeper, half a minute later."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._app: Celery | None = None
        self._is_down = False

    def send(self, jobs: Iterable[DueJob]) -> None:
        """Never raises: a broker that does not answer is logged, once."""
        try:
            for job in jobs:
                self._send(job)
        except (OperationalError, OSError) as error:
            if not self._is_down:
                _log.error(
                    "the job broker %s does not answer: %s; jobs wait, and are sent when it does",
                    self._broker.shown,
                    error,
                )
            self._is_down = True
            return
        if self._is_down:
            _log.info("the job broker %s answers again", self._broker.shown)
        self._is_down = False

    def close(self) -> None:
        """Close connections to the broker."""
        if self._app is not None:
            with contextlib.suppress(OSError, OperationalError):
                self._app.close()
        self._app = None

    def _send(self, job: DueJob) -> None:
        if self._app is None:
            self._app = celery_app(self._broker, ())
        self._app.send_task(
            TASK,
            args=(job.id,),
            queue=job_queue(self._broker, job.queue),
            retry=True,
            retry_policy=_TRIES,
            ignore_result=True,
        )

"""Tell workers of jobs, through the broker. Blocks; on one thread at a time."""

import contextlib
import logging
from collections.abc import Iterable

from celery import Celery
from kombu.exceptions import OperationalError

from control.jobs.views import DueJob
from jobs.worker.broker import TASK, Broker, celery_app, job_queue

MOST_WAITING = 100
"""Messages that wait in a queue; of more workers would learn nothing, and where none listens they
would pile up."""
_MOST_FAILED = 3
"""Queues that are tried in one call where the broker takes nothing: each may take seconds."""

_log = logging.getLogger(__name__)
_TRIES = {"max_retries": 1, "interval_start": 0, "interval_step": 0.2, "interval_max": 0.2}


class JobSender:
    """Sends ids of jobs. What cannot be sent is sent again by the sweeper, half a minute later."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._app: Celery | None = None
        self._failing: set[str] = set()

    def send(self, jobs: Iterable[DueJob]) -> None:
        """Never raises: a queue that the broker does not take is logged, once, and does not hold up
        the others. A queue that has MOST_WAITING messages gets no more."""
        room: dict[str, int] = {}
        failed: set[str] = set()
        for job in jobs:
            if job.queue in failed or len(failed) >= _MOST_FAILED:
                continue
            try:
                self._send(job, room)
            except Exception as error:  # noqa: BLE001 - each transport has errors of its own
                failed.add(job.queue)
                self._log_failure(job.queue, error)
        for queue in room.keys() & self._failing - failed:
            _log.info("the job broker %s takes jobs of queue '%s' again", self._broker.shown, queue)
            self._failing.discard(queue)

    def close(self) -> None:
        """Close connections to the broker."""
        if self._app is not None:
            with contextlib.suppress(OSError, OperationalError):
                self._app.close()
        self._app = None

    def _log_failure(self, queue: str, error: Exception) -> None:
        if queue not in self._failing:
            _log.error(
                "the job broker %s takes no jobs of queue '%s': %s; they wait, and are sent when "
                "it does",
                self._broker.shown,
                queue,
                str(error) or type(error).__name__,
            )
        self._failing.add(queue)

    def _send(self, job: DueJob, room: dict[str, int]) -> None:
        """`room`: messages that queues may get yet in this call."""
        if self._app is None:
            self._app = celery_app(self._broker, ())
        if job.queue not in room:
            room[job.queue] = MOST_WAITING - self._waiting(self._app, job.queue)
        if room[job.queue] <= 0:
            return
        room[job.queue] -= 1
        self._app.send_task(
            TASK,
            args=(job.id,),
            queue=job_queue(self._broker, job.queue),
            retry=True,
            retry_policy=_TRIES,
            ignore_result=True,
        )

    def _waiting(self, app: Celery, name: str) -> int:
        """Messages in the queue, which is made where there is none yet."""
        queue = job_queue(self._broker, name)
        with app.connection_or_acquire() as connection:
            declared = connection.default_channel.queue_declare(
                queue=queue.name,
                durable=True,
                auto_delete=False,
                arguments=queue.queue_arguments or {},  # type: ignore[attr-defined]
            )
            return int(declared.message_count)

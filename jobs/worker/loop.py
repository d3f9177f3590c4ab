"""Celery's worker around ours: it consumes from the broker, and ends on SIGTERM."""

import logging
import warnings
from collections.abc import Callable, Sequence
from typing import Any

from celery import signals
from celery.exceptions import CPendingDeprecationWarning, SecurityWarning
from celery.worker.consumer import Consumer

from jobs.worker.broker import TASK, Broker, celery_app
from jobs.worker.worker import JobWorker

_log = logging.getLogger(__name__)


def listen(broker: Broker, queues: Sequence[str], worker: JobWorker, slots: int, name: str) -> None:
    """Run jobs that the broker tells of, up to `slots` at the same time, each on a thread of its
    own, until SIGTERM; then what runs is given back. On the main thread."""
    # It warns root of messages that run code when they are read; ours are JSON, and nothing else
    # is accepted.
    warnings.filterwarnings("ignore", category=SecurityWarning)
    # It warns at each reconnection of what becomes of late acknowledgements; ours are early.
    warnings.filterwarnings("ignore", category=CPendingDeprecationWarning)
    app = celery_app(broker, queues)

    @app.task(name=TASK)  # type: ignore[untyped-decorator]
    def work(_job_id: str) -> None:
        worker.work()

    def keep_logging(**_: Any) -> None:
        """Logging is set up already."""

    def stop(**_: Any) -> None:
        worker.stop()

    signals.setup_logging.connect(keep_logging)
    signals.worker_shutting_down.connect(stop)
    listening = app.Worker(
        pool="threads",
        concurrency=slots,
        consumer_cls=TolerantConsumer,
        hostname=name,
        quiet=True,
        without_gossip=True,
        without_mingle=True,
        without_heartbeat=not broker.url.startswith("amqp"),
        task_events=False,
    )
    for chatty in ("celery", "kombu"):
        logging.getLogger(chatty).setLevel(logging.WARNING)
    _log.info("waiting for jobs of %s at %s", ", ".join(queues), broker.shown)
    listening.start()
    worker.stop()


class MalformedMessage(Exception):
    """A message that cannot be read; it is gone from the broker."""


class TolerantConsumer(Consumer):  # type: ignore[misc]
    """Celery's own, which ends the worker over a message of a folder or of Redis that cannot be
    read, such as the empty file that a full disk or a power cut leaves; this one drops it and
    connects anew."""

    connection_errors: tuple[type[BaseException], ...]
    loop: Callable[..., None]

    def __init__(self, *given: Any, **options: Any) -> None:
        super().__init__(*given, **options)
        self.connection_errors = (*self.connection_errors, MalformedMessage)
        self._consume = self.loop
        self.loop = self._consume_readable

    def _consume_readable(self, *given: Any) -> None:
        try:
            self._consume(*given)
        except (ValueError, TypeError, LookupError, AttributeError) as error:
            raise MalformedMessage(
                f"a message that cannot be read is dropped: {type(error).__name__}: {error}"
            ) from error

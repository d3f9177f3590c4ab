"""The worker: claims jobs of its queues, one after the other on each of its threads."""

import logging
import threading

from control.errors import ControlError
from control.jobs.claims import claim
from control.jobs.policy.admission import AdmissionRules, WorkerIdentity
from jobs.worker.attempt import Attempt, WorkerContext

_log = logging.getLogger(__name__)


class JobWorker:
    """Runs jobs on whatever threads call `work`."""

    def __init__(
        self, context: WorkerContext, identity: WorkerIdentity, rules: AdmissionRules
    ) -> None:
        self._context = context
        self._identity = identity
        self._rules = rules
        self._lock = threading.Lock()
        self._attempts: set[Attempt] = set()
        self._stopping = threading.Event()

    @property
    def running(self) -> int:
        """Jobs that run now."""
        with self._lock:
            return len(self._attempts)

    def work(self) -> None:
        """Run jobs until none is left that this worker may have now.

        Which job it was told of does not matter: every one is told of, and the most urgent goes
        first. A database that does not answer ends it as well: jobs are told of again.
        """
        while not self._stopping.is_set():
            try:
                claimed = claim(self._context.database, self._identity, rules=self._rules)
            except ControlError as error:
                _log.warning("no job can be claimed now: %s", error)
                return
            if claimed is None:
                return
            _log.info("job %s: attempt %d begins", claimed.id, claimed.attempt)
            attempt = Attempt(self._context, claimed)
            with self._lock:
                self._attempts.add(attempt)
                if self._stopping.is_set():
                    attempt.interrupt()
            try:
                attempt.run()
            finally:
                with self._lock:
                    self._attempts.discard(attempt)

    def stop(self) -> None:
        """Claim nothing more, and give back what runs: their processes are killed, and they wait
        for another worker. Blocks for no longer than a lock."""
        with self._lock:
            self._stopping.set()
            attempts = list(self._attempts)
        for attempt in attempts:
            attempt.interrupt()

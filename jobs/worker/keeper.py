"""Keep a claim while its work goes on: renew it, write what is new, and notice its end."""

import logging
import threading
import time
from types import TracebackType
from typing import Literal, Self

from sqlalchemy import select

from control.errors import DatabaseGone, LostLease
from control.jobs.claims import ClaimedJob, renew
from control.jobs.messages import JobProgress
from control.jobs.policy.states import JobState
from control.jobs.tables import Job
from control.sql.database import Database
from jobs.process.job_process import MOST_POINTS, JobNews, JobProcess
from jobs.process.output import MOST_LINES

LOOK_SECS = 1.0
"""Between two looks at whether somebody wants the end, and two writes of progress, at least."""
RENEW_SECS = 8.0
"""Between two renewals where nothing is new."""
GONE_SECS = 600.0
"""Longest a job goes on whose database does not answer: whoever else gets it meanwhile is told
apart by its fence, so that a restart of the database costs no work."""

StopCause = Literal["", "cancelled", "interrupted", "lost"]

_log = logging.getLogger(__name__)


class LeaseKeeper:
    """A context in which one claim is kept, by a thread of its own. Any thread may call.

    `cause`: why the work is to end at once; "" while it is not.
    """

    def __init__(self, database: Database, claim: ClaimedJob) -> None:
        self._database = database
        self._claim = claim
        self._lock = threading.Lock()
        self._progress = JobProgress(0.0, "starting")
        self._written = JobProgress(-1.0, "")
        self._process: JobProcess | None = None
        self._unwritten = JobNews(self._progress, [], [], 0.0, 0, 0)
        self._renewed = time.monotonic()
        self._is_told = False
        self._over = threading.Event()
        self.cause: StopCause = ""
        self._thread = threading.Thread(target=self._run, name=f"lease-{claim.id}", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._over.set()
        self._thread.join()

    def tell(self, text: str) -> None:
        """What goes on before and after the process."""
        with self._lock:
            self._progress = JobProgress(self._progress.fraction, text[:200])

    def stopped(self) -> bool:
        """Whether the work is to end at once."""
        return bool(self.cause)

    def watch(self, process: JobProcess) -> None:
        """From now on tell what this process says, and end it with the claim."""
        with self._lock:
            self._process = process
        if self.cause:
            self._end(self.cause)

    def interrupt(self) -> None:
        """The worker stops."""
        self._end("interrupted")

    def unwritten(self) -> JobNews:
        """All news that the database does not have yet; for when the keeping is over."""
        return self._news()

    def _run(self) -> None:
        while not self._over.wait(LOOK_SECS):
            if self.cause in ("", "cancelled"):
                self._look()

    def _look(self) -> None:
        try:
            if self._wants_end():
                self._end("cancelled")
            self._renew()
        except LostLease as error:
            _log.warning("job %s: %s; its process is killed", self._claim.id, error)
            self._end("lost")
        except DatabaseGone as error:
            _log.debug("job %s: %s", self._claim.id, error)
        except Exception:  # noqa: BLE001 - a claim that nobody renews any more would be lost
            if not self._is_told:
                _log.exception(
                    "job %s: its claim cannot be renewed. This is a bug.", self._claim.id
                )
            self._is_told = True
        if (silence := time.monotonic() - self._renewed) > GONE_SECS:
            _log.warning(
                "job %s: its claim could not be renewed for %.0f s; its process is killed",
                self._claim.id,
                silence,
            )
            self._end("lost")

    def _wants_end(self) -> bool:
        """Raises LostLease, DatabaseGone."""
        claim = self._claim
        held = (Job.id == claim.id, Job.fence == claim.fence, Job.state == JobState.RUNNING)
        with self._database.reading() as session:
            cancel = session.scalar(select(Job.cancel).where(*held))
        if cancel is None:
            raise LostLease(f"the job {claim.id} is not held by claim {claim.fence} any more")
        return bool(cancel)

    def _renew(self) -> None:
        began = time.monotonic()
        news = self._unwritten = self._news()
        is_new = news.progress != self._written or news.points or news.lines
        if not is_new and began - self._renewed < RENEW_SECS:
            return
        given = (news.progress, news.points, news.lines) if is_new else (None, [], [])
        renew(self._database, self._claim, *given)
        self._renewed, self._written = began, news.progress
        self._unwritten = news._replace(points=[], lines=[])

    def _news(self) -> JobNews:
        """What is new since the last write, with what an earlier one could not write."""
        with self._lock:
            process, progress = self._process, self._progress
        earlier = self._unwritten
        if process is None:
            return earlier._replace(progress=progress)
        news = process.take_news()
        points = earlier.points + news.points
        while len(points) > MOST_POINTS:
            points = points[::2]
        return news._replace(
            progress=news.progress if news.progress.text else progress,
            points=points,
            lines=(earlier.lines + news.lines)[-MOST_LINES:],
        )

    def _end(self, cause: StopCause) -> None:
        with self._lock:
            if self.cause in ("", "cancelled"):
                self.cause = cause
            process, cause = self._process, self.cause
        if process is None:
            return
        if cause == "cancelled":
            process.cancel()
        else:
            process.abandon(f"the claim was {cause}")

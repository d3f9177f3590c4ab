"""What a worker writes: it claims a job, says now and then how far it is, and says how it ended.

Each is one transaction. A claim is fenced by a number: whoever has lost it to somebody else gets
LostLease from then on, and has changed nothing. All of it blocks.
"""

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import NamedTuple

import msgspec
from sqlalchemy import select

from control.errors import LostLease
from control.jobs import rows
from control.jobs.messages import CurvePoint, JobProgress
from control.jobs.policy import admission, leases
from control.jobs.policy.admission import AdmissionRules, QueuedJob, RunningJob, WorkerIdentity
from control.jobs.policy.limits import JobCost, JobLimits
from control.jobs.policy.output import kept_points, log_tail
from control.jobs.policy.states import JobState
from control.jobs.report import Report
from control.jobs.spec import JOB_TYPES, JobSpec
from control.jobs.tables import Job, JobOutput, JobReportRow
from control.jobs.views import SourceFolder
from control.sql.database import Database, Transaction
from control.sql.leases import database_now
from control.text import stored, stored_json

TELL = timedelta(seconds=1)
"""Between two events of a job's progress, at least."""


_UNREADABLE = (
    "its row cannot be read by this release of the server, as a job of the type {kind}: {error}; "
    "make the job again"
)


class ClaimedJob(msgspec.Struct, frozen=True):
    """A job that a worker holds. `fence` names this claim among all of the job; its folder in the
    store (`control.jobs.folders`) is this claim's alone. `attempt`: from 1."""

    id: str
    spec: JobSpec
    fence: int
    attempt: int
    limits: JobLimits
    sources: dict[str, SourceFolder]


class _ClaimedTerms(NamedTuple):
    """What a row says of the work, decoded."""

    spec: JobSpec
    limits: JobLimits
    sources: dict[str, SourceFolder]


class Continue(msgspec.Struct, frozen=True):
    """The worker still has the job, for `leases.LEASE` from now; it is to end it if `cancel`."""

    cancel: bool


class AttemptDone(msgspec.Struct, frozen=True, tag="done"):
    """The work has ended with a report. By its verdict: "accepted": the claim's output folder holds
    the result, which is published next; "advice": it is done; "refused": it has failed."""

    report: Report


class AttemptFailed(msgspec.Struct, frozen=True, tag="failed"):
    """The attempt has failed; `again`: another one may go better (a worker that was lost, memory
    that somebody else took), so that it waits for one if it has any left."""

    reason: str
    again: bool = False


class AttemptRefused(msgspec.Struct, frozen=True, tag="refused"):
    """The tool says that the work cannot be done; nothing is tried again."""

    reason: str


class AttemptCancelled(msgspec.Struct, frozen=True, tag="cancelled"):
    """The worker has ended it because somebody wanted that."""


class AttemptInterrupted(msgspec.Struct, frozen=True, tag="interrupted"):
    """The worker stops, through no fault of the job: it waits at once, and the attempt does not
    count."""


Outcome = AttemptDone | AttemptFailed | AttemptRefused | AttemptCancelled | AttemptInterrupted


def claim(
    database: Database,
    worker: WorkerIdentity,
    job_id: str | None = None,
    *,
    rules: AdmissionRules | None = None,
    now: datetime | None = None,
) -> ClaimedJob | None:
    """The job `job_id`, or, with None, whichever is next for this worker; None where there is none
    that it may have now: somebody else has it, it has ended, it waits for its next attempt, the
    rules (`admission.next_job`) keep it waiting, or this release has no such type of job. One whose
    row this release cannot read has failed, and does not hold up the others.

    `now`: None for the database's clock. Raises DatabaseGone.
    """
    with database.change(rows.WORKER) as tx:
        tx.alone()
        now = now or database_now(tx.session)
        while chosen := _next_job(tx, worker, job_id, rules or AdmissionRules(), now):
            row = rows.found(tx.session, chosen)
            try:
                work = _work_of(row)
            except msgspec.ValidationError as error:
                rows.step(tx, row, JobState.FAILED, _UNREADABLE.format(kind=row.type, error=error))
                continue
            _hold(tx, row, worker, now)
            return ClaimedJob(row.id, work.spec, row.fence, row.attempt, work.limits, work.sources)
        return None


def renew(
    database: Database,
    claim: ClaimedJob,
    progress: JobProgress | None = None,
    points: Sequence[CurvePoint] = (),
    log_lines: Sequence[str] = (),
    *,
    now: datetime | None = None,
) -> Continue:
    """Hold the job for another `leases.LEASE`, and write what is new. Call it about once a second
    where something is new, every ten seconds where nothing is.

    Raises LostLease: the process of the job is to be killed and its output left alone. DatabaseGone
    where it may be tried again, until the lease is over.
    """
    with database.change(rows.WORKER) as tx:
        now = now or database_now(tx.session)
        row = _held(tx, claim)
        row.lease_until = now + leases.LEASE
        if progress is not None:
            row.fraction = max(row.fraction, min(progress.fraction, 1.0))
            row.progress = stored(progress.text, rows.LONGEST_PROGRESS)
        _write_output(tx, row, points, log_lines)
        if (progress or points or log_lines) and _may_tell(row, now):
            rows.tell_progress(tx, row, now)
        return Continue(row.cancel)


def finish(
    database: Database,
    claim: ClaimedJob,
    outcome: Outcome,
    cost: JobCost | None = None,
    log_lines: Sequence[str] = (),
    points: Sequence[CurvePoint] = (),
    *,
    now: datetime | None = None,
) -> JobState:
    """Give the job up for good, with what came of it; the state that it is in now.

    Said again after a crash of the caller it raises LostLease, as for any other claim that is not
    held any more. Also raises DatabaseGone.
    """
    with database.change(rows.WORKER) as tx:
        now = now or database_now(tx.session)
        row = _held(tx, claim)
        row.cost = stored_json(cost or JobCost())
        _write_output(tx, row, points, log_lines)
        _end(tx, row, outcome, now)
        return JobState(row.state)


def fail_attempt(tx: Transaction, row: Job, reason: str, now: datetime) -> None:
    """A running job waits for another attempt, or ends where none is left or somebody wants that;
    see `leases.after_failure`."""
    attempts = leases.Attempts(row.attempt, row.most_attempts, row.cancel)
    following = leases.after_failure(attempts, now)
    row.not_before, row.sent_at = following.not_before, None
    rows.step(tx, row, following.state, reason)


def _next_job(
    tx: Transaction,
    worker: WorkerIdentity,
    job_id: str | None,
    rules: AdmissionRules,
    now: datetime,
) -> str | None:
    only = () if job_id is None else (Job.id == job_id,)
    waiting = select(Job.id, Job.by, Job.queue, Job.priority, Job.heavy, Job.not_before)
    ours = (Job.state == JobState.QUEUED, Job.type.in_(JOB_TYPES), *only)
    queued = tx.session.execute(waiting.where(*ours)).all()
    held = select(Job.by, Job.machine, Job.heavy).where(Job.state == JobState.RUNNING)
    running = tx.session.execute(held).all()
    return admission.next_job(
        [QueuedJob(*one) for one in queued],
        [RunningJob(*one) for one in running],
        worker,
        rules,
        now,
    )


def _work_of(row: Job) -> _ClaimedTerms:
    """Raises msgspec.ValidationError."""
    spec = msgspec.convert(row.spec, JobSpec)
    return _ClaimedTerms(spec, msgspec.convert(row.limits, JobLimits), rows.sources_of(row))


def _hold(tx: Transaction, row: Job, worker: WorkerIdentity, now: datetime) -> None:
    row.owner, row.machine = stored(worker.name, 255), stored(worker.machine, 255)
    row.fence, row.attempt = row.fence + 1, row.attempt + 1
    row.lease_until, row.started_at = now + leases.LEASE, now
    row.fraction, row.progress = 0.0, ""
    output = tx.session.get_one(JobOutput, row.id)
    output.log, output.points = "", b"[]"
    rows.step(tx, row, JobState.RUNNING)


def _held(tx: Transaction, claim: ClaimedJob) -> Job:
    tx.alone()
    row = tx.session.get(Job, claim.id)
    if row is None or row.state != JobState.RUNNING or row.fence != claim.fence:
        raise LostLease(f"the job {claim.id} is not held by claim {claim.fence} any more")
    return row


def _may_tell(row: Job, now: datetime) -> bool:
    return row.told_at is None or now - row.told_at >= TELL


def _write_output(
    tx: Transaction, row: Job, points: Sequence[CurvePoint], log_lines: Sequence[str]
) -> None:
    if not points and not log_lines:
        return
    output = tx.session.get_one(JobOutput, row.id)
    output.log = log_tail(output.log, log_lines)
    if points:
        before = msgspec.json.decode(output.points, type=list[CurvePoint])
        output.points = msgspec.json.encode(kept_points(before, points))


def _end(tx: Transaction, row: Job, outcome: Outcome, now: datetime) -> None:
    match outcome:
        case AttemptDone(report):
            _end_with_report(tx, row, report)
        case AttemptFailed(reason, True):
            fail_attempt(tx, row, reason, now)
        case AttemptFailed(reason) | AttemptRefused(reason):
            rows.step(tx, row, JobState.FAILED, reason)
        case AttemptCancelled():
            rows.step(tx, row, JobState.CANCELLED)
        case AttemptInterrupted():
            row.attempt, row.not_before, row.sent_at = row.attempt - 1, now, None
            rows.step(tx, row, JobState.CANCELLED if row.cancel else JobState.QUEUED)


def _end_with_report(tx: Transaction, row: Job, report: Report) -> None:
    payload = msgspec.json.encode(report)
    tx.session.merge(JobReportRow(job_id=row.id, at=tx.now, payload=payload))
    if report.verdict == "refused":
        rows.step(tx, row, JobState.FAILED, "; ".join(report.reasons) or "the report refuses it")
        return
    row.fraction = 1.0
    accepted = report.verdict == "accepted"
    rows.step(tx, row, JobState.PUBLISHING if accepted else JobState.DONE)

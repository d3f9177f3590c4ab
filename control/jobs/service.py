"""Jobs as people change and see them: made, cancelled, tried again, listed."""

from collections.abc import Mapping
from dataclasses import dataclass, field

import msgspec
from sqlalchemy import func, select
from sqlalchemy.orm import Session

from control import paging
from control.clock import new_id
from control.errors import Conflict, Invalid, NotFound, TooMany
from control.jobs import rows
from control.jobs.messages import CurvePoint
from control.jobs.policy.admission import (
    HEAVY_TYPES,
    QUEUE_NAME,
    USUAL_QUEUE,
    AdmissionRules,
)
from control.jobs.policy.leases import MOST_ATTEMPTS
from control.jobs.policy.limits import JobCost, JobLimits, usual_limits
from control.jobs.policy.states import ENDS, UNFINISHED, JobState
from control.jobs.report import Report
from control.jobs.spec import JOB_TYPES, JobSpec
from control.jobs.tables import Job, JobOutput, JobReportRow, JobTraffic
from control.jobs.traffic import MOST_TOTAL_BYTES, Traffic, encode_traffic
from control.jobs.views import JobLog, JobView, SourceFolder
from control.paging import SortOrder
from control.sql.database import Transaction
from control.text import stored_json
from control.views import Page

SOURCE = "source"
"""The role of the version that a job works on."""

FILES = "files"
"""The role of the version with the data that the spec names, where that is another one."""

_AGAIN_S = 60.0


@dataclass(frozen=True, slots=True)
class JobTerms:
    """What is asked of a job beside its spec. `result_model`: "" for the source's. `limits`: None
    for those of its type. `priority`: the higher, the sooner. `pipeline`, `step`: the pipeline that
    it is a step of, from 1; a later step than the first is not counted against its principal.
    `traffic`: what a profile sends again, () for none."""

    result_model: str = ""
    limits: JobLimits | None = None
    priority: int = 0
    queue: str = USUAL_QUEUE
    most_attempts: int = MOST_ATTEMPTS
    rules: AdmissionRules = field(default_factory=AdmissionRules)
    pipeline: str = ""
    step: int = 0
    traffic: Traffic = ()


def enqueue(
    tx: Transaction,
    spec: JobSpec,
    sources: Mapping[str, SourceFolder],
    terms: JobTerms | None = None,
) -> JobView:
    """A job that waits, in the transaction of what causes it. After the commit a worker is to be
    told of it (`control.jobs.sweeper.due` tells later where that fails).

    `sources`: role → version; "source" is the one that the job works on, "files" the one in whose
    folder its data is, where that is another. The spec must have been checked. Raises TooMany, and
    Invalid for a queue whose name cannot be one.
    """
    terms = terms or JobTerms()
    _check_queue(terms.queue)
    tx.alone()
    if terms.step <= 1:
        _check_room(tx, tx.actor.principal, terms.rules)
    row = _queued(tx, spec, sources, terms)
    tx.session.add(row)
    tx.session.flush()
    tx.session.add(JobOutput(job_id=row.id, log="", points=b"[]"))
    if terms.traffic:
        _keep_traffic(tx, row.id, encode_traffic(terms.traffic))
    tx.changed("job.queued", rows.subject(row), None, {"spec": row.spec}, **rows.facts(row))
    return rows.view(row)


def _queued(
    tx: Transaction, spec: JobSpec, sources: Mapping[str, SourceFolder], terms: JobTerms
) -> Job:
    source, kind = sources[SOURCE], type_of(spec)
    return Job(
        id=new_id(tx.now),
        type=kind,
        spec=stored_json(spec),
        model=source.model,
        version=source.version,
        sources=stored_json(dict(sources)),
        result_model=terms.result_model or source.model,
        result_version=None,
        result_digest="",
        state=JobState.QUEUED,
        reason="",
        queue=terms.queue,
        priority=terms.priority,
        heavy=kind in HEAVY_TYPES,
        limits=stored_json(terms.limits or usual_limits(kind)),
        attempt=0,
        most_attempts=terms.most_attempts,
        owner="",
        machine="",
        fence=0,
        lease_until=None,
        cancel=False,
        fraction=0.0,
        progress="",
        cost=stored_json(JobCost()),
        by=tx.actor.principal,
        created_at=tx.now,
        not_before=tx.now,
        sent_at=None,
        started_at=None,
        told_at=None,
        finished_at=None,
        pipeline=terms.pipeline,
        step=terms.step,
    )


def cancel(tx: Transaction, job_id: str) -> JobView:
    """A waiting job ends at once; of one that runs, its worker is told to end it, and of one that
    is being published the publisher. Raises NotFound, Conflict for one that has ended."""
    row = rows.held(tx, job_id)
    if row.state == JobState.QUEUED:
        rows.step(tx, row, JobState.CANCELLED)
    elif row.state in ENDS:
        raise Conflict(f"the job {row.id} is {row.state} already")
    elif not row.cancel:
        row.cancel = True
        tx.changed("job.cancelling", rows.subject(row), {"cancel": False}, {"cancel": True})
    return rows.view(row)


def retry(tx: Transaction, job_id: str, rules: AdmissionRules | None = None) -> JobView:
    """A job that has failed or was cancelled waits again, with all its attempts. Raises NotFound,
    Conflict for any other, TooMany."""
    row = rows.held(tx, job_id)
    if row.state not in (JobState.FAILED, JobState.CANCELLED):
        raise Conflict(
            f"the job {row.id} is {row.state}; only one that has failed or was cancelled can be "
            "tried again"
        )
    _check_room(tx, row.by, rules or AdmissionRules())
    row.attempt, row.fraction, row.progress, row.cancel = 0, 0.0, "", False
    row.not_before, row.sent_at, row.started_at = tx.now, None, None
    row.cost = stored_json(JobCost())
    rows.step(tx, row, JobState.QUEUED)
    report = tx.session.get(JobReportRow, row.id)
    if report is not None:
        tx.session.delete(report)
    return rows.view(row)


def list_jobs(
    session: Session,
    *,
    model: str | None = None,
    state: str | None = None,
    kind: str | None = None,
    cursor: str | None = None,
    limit: int = paging.USUAL,
) -> Page[JobView]:
    """Newest first; `model` is the source or the result. Raises Invalid."""
    query = select(Job)
    if model is not None:
        query = query.where((Job.model == model) | (Job.result_model == model))
    if state is not None:
        query = query.where(Job.state == _one_of(state, tuple(JobState), "state"))
    if kind is not None:
        query = query.where(Job.type == _one_of(kind, JOB_TYPES, "type"))
    order = SortOrder((Job.id,), newest_first=True)
    return paging.page(session, query, order, cursor, limit).map(rows.view)


def get_job(session: Session, job_id: str) -> JobView:
    """Raises NotFound."""
    return rows.view(rows.found(session, job_id))


def get_log(session: Session, job_id: str) -> JobLog:
    """Raises NotFound."""
    row = session.get(JobOutput, rows.found(session, job_id).id)
    assert row is not None
    return JobLog(row.log, msgspec.json.decode(row.points, type=tuple[CurvePoint, ...]))


def get_report(session: Session, job_id: str) -> Report:
    """Raises NotFound, also where the job has not come to a report."""
    row = session.get(JobReportRow, job_id) if job_id.isprintable() else None
    if row is None:
        state = rows.found(session, job_id).state
        raise NotFound(f"the job '{job_id:.80}' has no report; it is {state}")
    return msgspec.json.decode(row.payload, type=Report)


def get_traffic(session: Session, job_id: str) -> bytes:
    """What a profile sends again, as `traffic.decode_traffic` reads it. Raises NotFound for a job
    that has none any more."""
    row = session.get(JobTraffic, job_id)
    if row is None:
        raise NotFound(
            f"the sampled requests of the job '{job_id:.80}' are gone: they are kept for a day at "
            "most, and until the job is done; sample requests and ask for another profile"
        )
    return row.payload


def type_of(spec: JobSpec) -> str:
    """The job's type, such as "quantise"."""
    return str(spec.__struct_config__.tag)


def _keep_traffic(tx: Transaction, job_id: str, payload: bytes) -> None:
    """Raises TooMany."""
    kept = tx.session.scalar(select(func.sum(func.length(JobTraffic.payload)))) or 0
    if kept + len(payload) > MOST_TOTAL_BYTES:
        raise TooMany(
            f"jobs keep {kept / 2**20:.1f} MiB of sampled requests, and all may keep "
            f"{MOST_TOTAL_BYTES >> 20} MiB; they go when their jobs are done, and after a day",
            _AGAIN_S,
        )
    tx.session.add(JobTraffic(job_id=job_id, payload=payload))


def _check_room(tx: Transaction, principal: str, rules: AdmissionRules) -> None:
    theirs = Job.by == principal
    waiting = select(func.count()).select_from(Job).where(theirs, Job.state.in_(UNFINISHED))
    if (tx.session.scalar(waiting) or 0) >= rules.unfinished_per_principal:
        raise TooMany(
            f"{rules.unfinished_per_principal} jobs of {principal} wait or run already; "
            "cancel some, or try again later",
            _AGAIN_S,
        )


def _check_queue(name: str) -> None:
    if QUEUE_NAME.fullmatch(name) is None:
        raise Invalid(
            f"queue is '{name:.80}'; give a name of letters, digits, _ and -, at most 64 long, "
            f"such as {USUAL_QUEUE}",
            "queue",
        )


def _one_of(value: str, allowed: tuple[str, ...], field: str) -> str:
    if value not in allowed:
        raise Invalid(f"'{value:.80}' is no {field} of a job; {', '.join(allowed)} are", field)
    return value

"""What all changes of job rows share: finding one, and moving it along its life."""

from datetime import datetime
from typing import Any, TypeVar

import msgspec
from sqlalchemy import delete
from sqlalchemy.orm import Session

from control.errors import Conflict, NotFound
from control.jobs.pipeline_rows import follow_job
from control.jobs.policy.limits import JobCost, JobLimits, usual_limits
from control.jobs.policy.states import ENDS, JobState, may_follow
from control.jobs.tables import Job, JobTraffic
from control.jobs.views import JobResultView, JobSourceView, JobView, SourceFolder
from control.sql.database import Actor, Transaction
from control.tables import Event
from control.text import stored

WORKER = Actor("system:jobs", "system")
"""Who makes the changes that workers, the sweeper and the publisher make."""

K = TypeVar("K")

LONGEST_REASON, LONGEST_PROGRESS = 4_096, 256


def found(session: Session, job_id: str) -> Job:
    """Raises NotFound."""
    row = session.get(Job, job_id) if job_id.isprintable() else None
    if row is None:
        raise NotFound(f"there is no job '{job_id:.80}'")
    return row


def held(tx: Transaction, job_id: str) -> Job:
    """The row, which nobody else changes before the commit. Raises NotFound."""
    tx.alone()
    return found(tx.session, job_id)


def step(tx: Transaction, row: Job, state: JobState, reason: str = "") -> None:
    """Move it on, and its pipeline, with their events. Raises Conflict where `state` cannot
    follow."""
    if not may_follow(state, JobState(row.state)):
        raise Conflict(f"the job {row.id} is {row.state}; it cannot become {state}")
    before = {"state": row.state}
    row.state, row.reason = state, stored(reason, LONGEST_REASON)
    if state != JobState.RUNNING:
        row.owner, row.lease_until = "", None
    row.finished_at = tx.now if state in ENDS else None
    if state == JobState.DONE:
        tx.session.execute(delete(JobTraffic).where(JobTraffic.job_id == row.id))
    after = {"state": str(state)} | ({"reason": row.reason} if reason else {})
    tx.changed(f"job.{state}", subject(row), before, after, **facts(row))
    follow_job(tx, row)


def tell_progress(tx: Transaction, row: Job, now: datetime) -> None:
    """Of one job the latest such event alone is kept."""
    kind = "job.progress"
    earlier = delete(Event).where(Event.subject == subject(row), Event.kind == kind)
    tx.session.execute(earlier, execution_options={"synchronize_session": False})
    tx.happened(kind, subject(row), fraction=row.fraction, progress=row.progress, **facts(row))
    row.told_at = now


def subject(row: Job) -> str:
    return f"job:{row.id}"


def facts(row: Job) -> dict[str, Any]:
    """What every event of a job tells beside what happened."""
    result = {"model": row.result_model, "version": row.result_version}
    return {"type": row.type, "model": row.model, "version": row.version, "result": result}


def sources_of(row: Job) -> dict[str, SourceFolder]:
    return msgspec.convert(row.sources, dict[str, SourceFolder])


def view(row: Job) -> JobView:
    """As it is shown. What this release cannot read of it (another one has written it) is shown as
    is usual for its type: one row must not keep a list from being shown."""
    made = {"state", "sources", "result", "limits", "cost"}
    same = {name: getattr(row, name) for name in JobView.__struct_fields__ if name not in made}
    return JobView(
        state=JobState(row.state),
        sources=tuple(
            JobSourceView(role, one.model, one.version, one.digest)
            for role, one in _shown_sources(row).items()
        ),
        result=JobResultView(row.result_model, row.result_version, row.result_digest),
        limits=_read(row.limits, JobLimits) or usual_limits(row.type),
        cost=_read(row.cost, JobCost) or JobCost(),
        **same,
    )


def _shown_sources(row: Job) -> dict[str, SourceFolder]:
    found = _read(row.sources, dict[str, SourceFolder])
    return found or {"source": SourceFolder(row.model, row.version)}


def _read(document: Any, kind: type[K]) -> K | None:
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError:
        return None

"""How long jobs that have ended are listed, and sampled requests of profiles are kept; what made a
version is kept with it."""

from datetime import timedelta

from sqlalchemy import ColumnElement, delete, exists, select

from control.jobs.policy.states import ENDS
from control.jobs.tables import Job, JobOutput, JobReportRow, JobTraffic
from control.sql.database import Transaction
from control.tables import Version

KEEP = timedelta(days=90)
KEEP_JOBS = 10_000
"""A job is forgotten once it has ended longer ago than this, or so many later ones have."""

FORGET_AT_ONCE = 1_000

KEEP_TRAFFIC = timedelta(days=1)
"""After a job was made: time to run it, and to try it again."""


def source_text(job_id: str) -> str:
    """What the version that a job has made says of where it came from."""
    return f"job:{job_id}"


def forget_jobs(tx: Transaction, keep_jobs: int = KEEP_JOBS) -> int:
    """Remove old jobs, at most FORGET_AT_ONCE; how many. Reports of versions stay."""
    newest = select(Job.id).where(Job.state.in_(ENDS)).order_by(Job.id.desc())
    before = tx.session.scalar(newest.offset(keep_jobs).limit(1)) or ""
    old = (Job.finished_at <= tx.now - KEEP) | (Job.id <= before)
    ended = select(Job.id).where(Job.state.in_(ENDS), old).order_by(Job.id).limit(FORGET_AT_ONCE)
    ids = tx.session.scalars(ended).all()
    if ids:
        for gone in (
            delete(JobOutput).where(JobOutput.job_id.in_(ids)),
            delete(JobTraffic).where(JobTraffic.job_id.in_(ids)),
            delete(JobReportRow).where(JobReportRow.job_id.in_(ids), ~_made_a_version()),
            delete(Job).where(Job.id.in_(ids)),
        ):
            tx.session.execute(gone, execution_options={"synchronize_session": False})
    return len(ids)


def forget_traffic(tx: Transaction) -> None:
    """Remove the sampled requests of jobs that were made longer than KEEP_TRAFFIC ago, whatever
    became of the jobs."""
    old = select(Job.id).where(Job.created_at <= tx.now - KEEP_TRAFFIC)
    tx.session.execute(
        delete(JobTraffic).where(JobTraffic.job_id.in_(old)),
        execution_options={"synchronize_session": False},
    )


def _made_a_version() -> ColumnElement[bool]:
    return exists().where(Version.source == source_text("") + JobReportRow.job_id)

"""Jobs that have not ended: how many there are, and what a restored server makes of them."""

from collections.abc import Collection

from sqlalchemy import delete, func, select
from sqlalchemy.orm import Session

from control.jobs.policy.states import JobState
from control.jobs.tables import Job, JobReportRow
from control.sql.database import Transaction

RESTORED = "the server was restored from a backup, which has no unfinished work"


def work_left(session: Session, queues: Collection[str]) -> int:
    """Jobs of these queues that wait for a worker or have one."""
    states = (JobState.QUEUED, JobState.RUNNING)
    query = select(func.count()).where(Job.state.in_(states), Job.queue.in_(queues))
    return int(session.scalar(query) or 0)


def wait_again(tx: Transaction) -> None:
    """Jobs that run or are published wait anew, for a database that was restored: neither their
    workers nor their results are there. The attempt does not count."""
    states = (JobState.RUNNING, JobState.PUBLISHING)
    for row in tx.session.scalars(select(Job).where(Job.state.in_(states))):
        row.state, row.reason = JobState.QUEUED, RESTORED
        row.owner, row.machine, row.lease_until = "", "", None
        row.attempt, row.fraction, row.progress = max(row.attempt - 1, 0), 0.0, ""
        row.not_before, row.sent_at = tx.now, None
        tx.session.execute(delete(JobReportRow).where(JobReportRow.job_id == row.id))

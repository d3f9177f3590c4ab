"""How much there is to do for workers."""

from collections.abc import Collection

from sqlalchemy import func, select
from sqlalchemy.orm import Session

from control.jobs.policy.states import JobState
from control.jobs.tables import Job


def work_left(session: Session, queues: Collection[str]) -> int:
    """Jobs of these queues that wait for a worker or have one."""
    states = (JobState.QUEUED, JobState.RUNNING)
    query = select(func.count()).where(Job.state.in_(states), Job.queue.in_(queues))
    return int(session.scalar(query) or 0)

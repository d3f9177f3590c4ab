"""What the sweeper does now and then: takes jobs back from workers that are gone, and says which
jobs workers are to be told of, since brokers lose messages."""

from dataclasses import replace
from datetime import datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from control.jobs import rows
from control.jobs.claims import fail_attempt
from control.jobs.policy.leases import SweepPlan, SweptJob, plan_sweep
from control.jobs.policy.states import JobState
from control.jobs.tables import Job
from control.jobs.views import DueJob
from control.sql.database import Database
from control.sql.leases import database_now

LOST = "the worker that ran it is gone: it was killed, or its machine or its network failed"


def due(
    database: Database, now: datetime | None = None, *, reclaim: bool = True
) -> tuple[DueJob, ...]:
    """The queued jobs that workers are to be told of now, the most urgent first; each counts as
    told of from here on, for `leases.RESEND`. Jobs whose workers have not renewed their claims in
    time are taken back before, unless not `reclaim`: they wait for another attempt, or have failed.

    Call it every few seconds, on any number of machines, and after an event of the kind
    "job.queued". It writes nothing where nothing is to be done. `now`: None for the database's
    clock. Raises DatabaseGone.
    """
    with database.reading() as session:
        plan = _plan(session, now, reclaim)
    if not plan.reclaim and not plan.send:
        return ()
    with database.change(rows.WORKER) as tx:
        tx.alone()
        now = now or database_now(tx.session)
        plan = _plan(tx.session, now, reclaim)
        for job_id in plan.reclaim:
            fail_attempt(tx, rows.found(tx.session, job_id), LOST, now)
        jobs = [rows.found(tx.session, job_id) for job_id in plan.send]
        for row in jobs:
            row.sent_at = now
        return tuple(DueJob(row.id, row.queue, row.priority) for row in jobs)


def _plan(session: Session, now: datetime | None, reclaim: bool) -> SweepPlan:
    columns = (Job.id, Job.state, Job.priority, Job.not_before, Job.sent_at, Job.lease_until)
    open_states = (JobState.QUEUED, JobState.RUNNING)
    found = session.execute(select(*columns).where(Job.state.in_(open_states))).all()
    jobs = [SweptJob(one[0], JobState(one[1]), *one[2:]) for one in found]
    plan = plan_sweep(jobs, now or database_now(session))
    return plan if reclaim else replace(plan, reclaim=())

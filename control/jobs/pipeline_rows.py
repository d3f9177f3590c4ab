"""The state of a pipeline, moved by the jobs that are its steps, in their transactions."""

from control.jobs.policy.pipelines import PipelineState, state_after
from control.jobs.policy.states import JobState
from control.jobs.tables import Job, Pipeline
from control.sql.database import Transaction
from control.text import stored

LONGEST_REASON = 4_096


def follow_job(tx: Transaction, job: Job) -> None:
    """The job has another state: so may the pipeline that has come to it."""
    row = tx.session.get(Pipeline, job.pipeline) if job.pipeline else None
    if row is None or row.step != job.step:
        return
    state = state_after(JobState(job.state), row.step, len(row.steps))
    ended_badly = state in (PipelineState.FAILED, PipelineState.CANCELLED)
    words = f"step {row.step}, {job.type}: {job.reason or job.state}"
    move(tx, row, state, words if ended_badly else "")


def move(tx: Transaction, row: Pipeline, state: PipelineState, reason: str = "") -> None:
    """With its event, where that is news."""
    if row.state == state:
        return
    before = {"state": row.state}
    row.state, row.reason = state, stored(reason, LONGEST_REASON)
    row.finished_at = None if state is PipelineState.RUNNING else tx.now
    after = {"state": str(state)} | ({"reason": row.reason} if reason else {})
    facts = {"model": row.model, "version": row.version, "step": row.step}
    tx.changed(f"pipeline.{state}", subject(row), before, after, **facts)


def subject(row: Pipeline) -> str:
    return f"pipeline:{row.id}"

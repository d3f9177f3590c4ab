"""How long pipelines that have ended are listed: as long as jobs."""

from sqlalchemy import delete, select

from control.jobs.policy.pipelines import PipelineState
from control.jobs.retention import FORGET_AT_ONCE, KEEP, KEEP_JOBS
from control.jobs.tables import Pipeline
from control.sql.database import Transaction


def forget_pipelines(tx: Transaction, keep: int = KEEP_JOBS) -> int:
    """Remove old ones, at most FORGET_AT_ONCE; how many."""
    is_over = Pipeline.state != PipelineState.RUNNING
    newest = select(Pipeline.id).where(is_over).order_by(Pipeline.id.desc())
    before = tx.session.scalar(newest.offset(keep).limit(1)) or ""
    old = (Pipeline.finished_at <= tx.now - KEEP) | (Pipeline.id <= before)
    found = select(Pipeline.id).where(is_over, old).order_by(Pipeline.id).limit(FORGET_AT_ONCE)
    ids = tx.session.scalars(found).all()
    if ids:
        gone = delete(Pipeline).where(Pipeline.id.in_(ids))
        tx.session.execute(gone, execution_options={"synchronize_session": False})
    return len(ids)

"""Pipelines as people see them: listed and shown with their steps."""

from collections import defaultdict
from collections.abc import Sequence

from sqlalchemy import select
from sqlalchemy.orm import Session

from control import paging
from control.errors import Invalid, NotFound
from control.jobs.policy.pipelines import PipelineState
from control.jobs.tables import Job, Pipeline
from control.paging import SortOrder
from control.pipelines.views import PipelineStepView, PipelineView
from control.views import Page


def list_pipelines(
    session: Session,
    *,
    model: str | None = None,
    state: str | None = None,
    cursor: str | None = None,
    limit: int = paging.USUAL,
) -> Page[PipelineView]:
    """Newest first; `model` is the one that was pushed. Raises Invalid."""
    query = select(Pipeline)
    if model is not None:
        query = query.where(Pipeline.model == model)
    if state is not None:
        if state not in tuple(PipelineState):
            states = ", ".join(PipelineState)
            raise Invalid(f"'{state:.80}' is no state of a pipeline; {states} are", "state")
        query = query.where(Pipeline.state == state)
    order = SortOrder((Pipeline.id,), newest_first=True)
    found = paging.page(session, query, order, cursor, limit)
    return Page(tuple(_views(session, found.items)), found.next)


def get_pipeline(session: Session, pipeline_id: str) -> PipelineView:
    """Raises NotFound."""
    return _views(session, [find(session, pipeline_id)])[0]


def find(session: Session, pipeline_id: str) -> Pipeline:
    """Raises NotFound."""
    row = session.get(Pipeline, pipeline_id) if pipeline_id.isprintable() else None
    if row is None:
        raise NotFound(f"there is no pipeline '{pipeline_id:.80}'")
    return row


def jobs_of(session: Session, pipelines: Sequence[Pipeline]) -> dict[str, dict[int, Job]]:
    """Pipeline → step → its job; those that are forgotten are missing."""
    found = select(Job).where(Job.pipeline.in_([row.id for row in pipelines]))
    jobs: dict[str, dict[int, Job]] = defaultdict(dict)
    for job in session.scalars(found):
        jobs[job.pipeline][job.step] = job
    return jobs


def _views(session: Session, rows: Sequence[Pipeline]) -> list[PipelineView]:
    jobs = jobs_of(session, rows)
    return [_view(row, jobs[row.id]) for row in rows]


def _view(row: Pipeline, jobs: dict[int, Job]) -> PipelineView:
    return PipelineView(
        id=row.id,
        model=row.model,
        version=row.version,
        digest=row.digest,
        push=row.push,
        state=PipelineState(row.state),
        reason=row.reason,
        step=row.step,
        steps=tuple(
            _step(row, number, str(document["type"]), jobs)
            for number, document in enumerate(row.steps, 1)
        ),
        by=row.by,
        created_at=row.created_at,
        finished_at=row.finished_at,
    )


def _step(row: Pipeline, number: int, kind: str, jobs: dict[int, Job]) -> PipelineStepView:
    job, before = jobs.get(number), jobs.get(number - 1)
    made = job or (before if number <= row.step else None)
    is_here = number == row.step
    _, _, rollout = row.outcome.partition("rollout:") if is_here else ("", "", "")
    return PipelineStepView(
        number=number,
        type=kind,
        state=job.state if job else _state(row, number),
        job=job.id if job else "",
        fraction=job.fraction if job else 0.0,
        model=made.result_model if made else "",
        version=made.result_version if made else None,
        rollout=rollout,
        reason=row.reason if is_here else "",
    )


def _state(row: Pipeline, number: int) -> str:
    """Of a step without a job: a rollout, an alias, one that is not begun, or whose job is
    forgotten."""
    running = row.state == PipelineState.RUNNING
    if number < row.step:
        return "done"
    if number > row.step or running:
        return "waiting" if running else "skipped"
    return row.state

"""Pipelines: begun by a push, taken on by each result of a job, cancelled.

Whatever keeps a step from being taken ends its pipeline with the reason, and nothing else: the push
is deployed, and the version that the step before has made stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sqlalchemy import func, select

from control.clock import new_id
from control.deployments.aliases import set_alias
from control.errors import Conflict, ControlError, DatabaseGone, LostLease
from control.jobs import pipeline_rows
from control.jobs import service as jobs
from control.jobs.creation import JobRequest, JobRights, create
from control.jobs.pipeline_rows import move
from control.jobs.policy.pipelines import PipelineState
from control.jobs.policy.states import ENDS
from control.jobs.service import JobTerms
from control.jobs.tables import Pipeline
from control.jobs.views import JobView
from control.pipelines.queries import find, get_pipeline, jobs_of
from control.pipelines.steps import BadSteps, JobStep, ResultAlias, ResultRollout, Step, read_steps
from control.pipelines.views import PipelineView
from control.rollouts.plan import RolloutPlan
from control.rollouts.route_start import roll_out
from control.routes.service import find_route
from control.sql.database import Transaction
from control.tables import Version

_PUSHER_RIGHTS = JobRights(check_use=lambda _: None, check_trusted=lambda: None)
"""A pusher decides what the model is, and a push by who may not have its steps taken is refused."""

_UNDONE = (PipelineState.FAILED, PipelineState.CANCELLED)


@dataclass(frozen=True, slots=True)
class PushedSteps:
    """A model that a push has deployed, with the documents of its steps. `versions`: all that it
    has, number → digest. `is_checked`: the push told its pusher what it needs and had it."""

    model: str
    versions: Mapping[int, str]
    steps: Sequence[Mapping[str, Any]]
    push: str
    is_checked: bool


def begin(tx: Transaction, pushed: PushedSteps) -> PipelineView | None:
    """Take the first step, in the transaction that deploys the push, for the version that it
    brought; for the highest where it brought none. None where the same steps are done or under way
    for the same version already."""
    tx.alone()
    number = _brought(tx, pushed) or max(pushed.versions)
    if _is_there(tx, pushed, number):
        return None
    row = Pipeline(
        id=new_id(tx.now),
        model=pushed.model,
        version=number,
        digest=pushed.versions[number],
        push=pushed.push,
        steps=[dict(one) for one in pushed.steps],
        step=1,
        state=PipelineState.RUNNING,
        reason="",
        outcome="",
        by=tx.actor.principal,
        created_at=tx.now,
        finished_at=None,
    )
    tx.session.add(row)
    tx.session.flush()
    after = {"state": "running", "push": pushed.push}
    facts = {"model": row.model, "version": number, "step": 1}
    tx.changed("pipeline.begun", pipeline_rows.subject(row), None, after, **facts)
    _take(tx, row, (row.model, number), pushed.is_checked)
    return get_pipeline(tx.session, row.id)


def advance(tx: Transaction, job: JobView) -> None:
    """The job is done, and its result a version: take the step after it, in the transaction that
    publishes it. Nothing where that was taken already, and for a job that is no step."""
    row = tx.session.get(Pipeline, job.pipeline) if job.pipeline else None
    if row is None or row.step != job.step or row.state != PipelineState.RUNNING:
        return
    assert job.result.version is not None
    row.step += 1
    _take(tx, row, (job.result.model, job.result.version), is_checked=True)


def cancel(tx: Transaction, pipeline_id: str) -> PipelineView:
    """Its job is cancelled, and it ends with that. Raises NotFound, Conflict for one that has
    ended."""
    tx.alone()
    row = find(tx.session, pipeline_id)
    if row.state != PipelineState.RUNNING:
        raise Conflict(f"the pipeline {row.id} is {row.state} already")
    job = jobs_of(tx.session, [row])[row.id].get(row.step)
    if job is None or job.state in ENDS:
        move(tx, row, PipelineState.CANCELLED, f"step {row.step}: cancelled")
    else:
        jobs.cancel(tx, job.id)
    return get_pipeline(tx.session, row.id)


def _brought(tx: Transaction, pushed: PushedSteps) -> int:
    """The highest version that the push has added, 0 for none."""
    mine = Version.model == pushed.model, Version.push_id == pushed.push
    return int(tx.session.scalar(select(func.max(Version.number)).where(*mine)) or 0)


def _is_there(tx: Transaction, pushed: PushedSteps, number: int) -> bool:
    same = select(Pipeline).where(
        Pipeline.model == pushed.model,
        Pipeline.version == number,
        Pipeline.digest == pushed.versions[number],
    )
    steps = [dict(one) for one in pushed.steps]
    return any(
        row.push == pushed.push or (row.steps == steps and row.state not in _UNDONE)
        for row in tx.session.scalars(same)
    )


def _take(tx: Transaction, row: Pipeline, made: tuple[str, int], is_checked: bool) -> None:
    """Take the step that the row has come to, on the version `made`; or end the pipeline."""
    try:
        step = read_steps(row.steps, row.model)[row.step - 1]
        with tx.session.begin_nested():
            _do(tx, row, step, made, is_checked)
    except (LostLease, DatabaseGone):
        raise
    except (ControlError, BadSteps) as error:
        move(tx, row, PipelineState.FAILED, f"step {row.step}: {error}")


def _do(
    tx: Transaction, row: Pipeline, step: Step, made: tuple[str, int], is_checked: bool
) -> None:
    model, version = made
    match step:
        case JobStep():
            if step.trusted and not is_checked:
                raise Conflict(
                    "it says 'trusted', which the push of an administrator is taken for alone; "
                    "push the commit again"
                )
            _enqueue(tx, row, step, made)
            return
        case ResultRollout(plan):
            _check_newest(tx, row)
            row.outcome = _rolled_out(tx, model, version, plan)
        case ResultAlias(name):
            _check_newest(tx, row)
            set_alias(tx, model, name, version)
            row.outcome = f"alias:{model}@{name}"
    move(tx, row, PipelineState.DONE)


def _enqueue(tx: Transaction, row: Pipeline, step: JobStep, made: tuple[str, int]) -> None:
    model, version = made
    document = {**step.document, "model": model, "version": version}
    if step.result_model:
        document["result_model"] = step.result_model
    request = JobRequest(
        spec=document,
        rights=_PUSHER_RIGHTS,
        limits=step.limits,
        terms=JobTerms(pipeline=row.id, step=row.step),
        data_of=None if row.step == 1 else (row.model, row.version),
    )
    create(tx, request)


def _rolled_out(tx: Transaction, model: str, version: int, plan: RolloutPlan) -> str:
    """The subject of the rollout; "" for the first version of a model, which answers already."""
    if find_route(tx.session, model) is None:
        return ""
    return f"rollout:{roll_out(tx, model, version, plan).id}"


def _check_newest(tx: Transaction, row: Pipeline) -> None:
    """Raises Conflict where a later push has a pipeline of its own."""
    later = select(Pipeline.version).where(
        Pipeline.model == row.model, Pipeline.id > row.id, Pipeline.state.not_in(_UNDONE)
    )
    number = tx.session.scalar(later.order_by(Pipeline.id.desc()).limit(1))
    if number is not None:
        raise Conflict(
            f"version {number} of '{row.model}' was pushed since, and its pipeline decides; "
            "nothing is rolled out"
        )

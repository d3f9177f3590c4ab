"""The end of a job whose result is a version: its rows, in one transaction with the version's."""

from dataclasses import dataclass

import msgspec
from sqlalchemy import select
from sqlalchemy.orm import Session

from control.deployments.deployment import Origin, deploy_models
from control.deployments.sealed_model import SealedModel
from control.desired import DesiredArm
from control.errors import Conflict
from control.jobs import rows
from control.jobs.policy.states import UNFINISHED, JobState
from control.jobs.retention import source_text
from control.jobs.tables import Job
from control.jobs.views import JobView
from control.lineage import Lineage, LineageStep
from control.routes import service as routes
from control.routes.buckets import BUCKETS
from control.routes.spec import RouteSpec
from control.sql.database import Transaction
from control.tables import Version
from control.text import stored, stored_json

_STABLE = "stable"

MOST_EARLIER = 32
"""Jobs before the last one that a version's lineage names."""


@dataclass(frozen=True, slots=True)
class PublishingJob:
    """A job whose output waits in the folder of its last claim, `fence`."""

    id: str
    fence: int
    model: str
    by: str
    cancel: bool


@dataclass(frozen=True, slots=True)
class SealedResult:
    """The snapshot with the result as its version `number`. `stable`: the version that answers who
    names none until now and would not any more, None where nothing changes for them."""

    sealed: SealedModel
    number: int
    stable: int | None


def publishing(session: Session) -> list[PublishingJob]:
    """What waits for the publisher, the oldest first."""
    columns = (Job.id, Job.fence, Job.result_model, Job.by, Job.cancel)
    waiting = select(*columns).where(Job.state == JobState.PUBLISHING).order_by(Job.id)
    return [PublishingJob(*one) for one in session.execute(waiting)]


def kept_claims(session: Session) -> dict[str, int]:
    """The jobs that have not ended, with the fence of the last claim: their folders are needed."""
    found = select(Job.id, Job.fence).where(Job.state.in_(UNFINISHED))
    return dict(session.execute(found).all())


def publish(tx: Transaction, job: PublishingJob, result: SealedResult) -> JobView:
    """Make the sealed result what is deployed of its model: the job is done.

    Its version gets no request until somebody says so: where it would answer those who name no
    version, a route of the model's name keeps the one that does so now. A job that is done already
    stays as it is. Raises Conflict as `deploy_models` does, and for a job that was cancelled.
    """
    row = rows.held(tx, job.id)
    if row.state == JobState.DONE:
        return rows.view(row)
    if row.state != JobState.PUBLISHING or row.fence != job.fence or row.cancel:
        raise Conflict(f"the job {row.id} is {'cancelled' if row.cancel else row.state}")
    if result.stable is not None and routes.find_route(tx.session, row.result_model) is None:
        arm = DesiredArm(_STABLE, row.result_model, result.stable, weight=BUCKETS)
        routes.set_route(tx, row.result_model, RouteSpec((arm,)))
    origin = Origin(None, None, source_text(row.id), row.by, stored_json(_lineage(tx.session, row)))
    deploy_models(tx, origin, {row.result_model: result.sealed})
    row.progress, row.result_version = "", result.number
    row.result_digest = result.sealed.versions[result.number].digest
    rows.step(tx, row, JobState.DONE)
    return rows.view(row)


def hold_back(tx: Transaction, job: PublishingJob, reason: str) -> None:
    """It cannot be published now; its progress says why, and that it is tried again."""
    row = rows.held(tx, job.id)
    text = stored(f"waits to be published: {reason}", rows.LONGEST_PROGRESS)
    if row.state == JobState.PUBLISHING and row.fence == job.fence and row.progress != text:
        row.progress = text
        rows.tell_progress(tx, row, tx.now)


def give_up(tx: Transaction, job: PublishingJob, reason: str) -> None:
    """The result cannot be a version, or is not wanted any more; nothing of it remains. Raises
    Conflict for a job that has ended otherwise."""
    row = rows.held(tx, job.id)
    if row.cancel:
        rows.step(tx, row, JobState.CANCELLED)
    elif row.state != JobState.FAILED:
        rows.step(tx, row, JobState.FAILED, reason)


def _lineage(session: Session, row: Job) -> Lineage:
    """Kept with the version, since jobs are forgotten and versions are not."""
    source = rows.sources_of(row)["source"]
    there = session.get(Version, (source.model, source.version))
    earlier: tuple[LineageStep, ...] = ()
    if there is not None and there.lineage:
        before = msgspec.convert(there.lineage, Lineage)
        last = LineageStep(before.job, before.type, before.model, before.version, before.digest)
        earlier = (last, *before.earlier)[:MOST_EARLIER]
    made_of = source.model, source.version, source.digest
    return Lineage(row.id, row.type, *made_of, row.pipeline, earlier)

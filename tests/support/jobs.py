"""Jobs for tests: made, claimed and moved in time, without a broker."""

from datetime import UTC, datetime, timedelta
from itertools import count

from control.jobs import service
from control.jobs.policy.admission import WorkerIdentity
from control.jobs.report import Report
from control.jobs.service import JobTerms
from control.jobs.spec import JobSpec
from control.jobs.specs.quantise import QuantiseSpec
from control.jobs.views import JobView, SourceFolder
from control.sql.database import Actor, Database
from support.control import ADA

START = datetime(2026, 11, 27, 12, tzinfo=UTC)
WORKER = WorkerIdentity("worker-1", "machine-1")
OTHER = WorkerIdentity("worker-2", "machine-2")
ACCEPTED = Report(title="Quantised", verdict="accepted")
ADVICE = Report(title="Profiled", verdict="advice")
REFUSED = Report(title="Quantised", verdict="refused", reasons=("accuracy 61 % is below 90 %",))

_numbers = count()


def after(seconds: float) -> datetime:
    return START + timedelta(seconds=seconds)


def enqueued(
    database: Database,
    model: str = "digits",
    terms: JobTerms | None = None,
    spec: JobSpec | None = None,
    actor: Actor = ADA,
) -> JobView:
    """A job on version 1 of `model`, which lies in the store."""
    sources = {"source": SourceFolder(model, 1, "a" * 64, "b" * 64)}
    with database.change(actor) as tx:
        tx.now = after(next(_numbers) / 1000 - 3600)  # ids sort by the time they were made
        return service.enqueue(tx, spec or QuantiseSpec(model=model), sources, terms)


def shown(database: Database, job_id: str) -> JobView:
    with database.reading() as session:
        return service.get_job(session, job_id)

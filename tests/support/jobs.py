"""Jobs for tests: made, claimed and moved in time, without a broker."""

from datetime import UTC, datetime, timedelta
from itertools import count

from control.jobs import service
from control.jobs.policy.admission import WorkerIdentity
from control.jobs.report import (
    Figure,
    GraphNode,
    NetworkGraph,
    Plot,
    PlotSeries,
    Report,
    ReportTable,
)
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

REPORT = Report(
    title="Quantise digits version 1",
    verdict="advice",
    reasons=("Agreement is 99.4 %, and 99 % were asked.",),
    warnings=("int8 is slower on this processor; serve the source.",),
    figures=(
        Figure("Size", "B", 4_000_000, 1_000_000, "lower"),
        Figure("Accuracy", "%", 97.5, 97.1, "higher"),
    ),
    tables=(
        ReportTable(
            "Layers", ("layer", "error", "kept"), (("conv1", 0.25, True), ("fc", None, False))
        ),
    ),
    plots=(
        Plot("Latency", "batch", "ms", (PlotSeries("source", ((1.0, 2.0), (8.0, 9.0))),), "line"),
        Plot("Bars", "batch", "ms", (PlotSeries("<b>int8</b>", ((1.0, 2.0),)),), "bar"),
    ),
    graphs=(NetworkGraph("After", (GraphNode("Conv", "a", ()), GraphNode("Relu", "b", (0,)))),),
    spec={"type": "quantise", "floor": 0.99},
    versions={"onnxruntime": "1.31.1"},
    digests={"model": "ab" * 32},
    cpu="EPYC 7543",
    seconds=12.0,
)
"""With everything that a report may have."""

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

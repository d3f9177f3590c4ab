"""The rows of offline jobs: each job's life, what it prints, its report, and its pipeline."""

from datetime import datetime
from typing import Any

from sqlalchemy import JSON, ForeignKey, LargeBinary, Text
from sqlalchemy.orm import Mapped, mapped_column

from control.tables import Json, Table


class Job(Table):
    """One job; `control.jobs.policy.states` has its states.

    spec: a `JobSpec`. model, version: what it works on, `version` never 0. sources: role → a
        `SourceFolder`. result_*: the version that becomes of it; `result_version` null and
        `result_digest` "" until it is published.
    queue: the workers that may take it; higher `priority` first. heavy: see
        `control.jobs.policy.admission`. limits: a `JobLimits`.
    attempt: 0 before the first. owner, machine: who runs it, "" for nobody, until `lease_until`.
        fence: of the last claim; it only grows. cancel: somebody wants it to end.
    fraction, progress: how far it is, 0 to 1, and what it does. cost: a `JobCost`.
    not_before: when it may be claimed. sent_at: when a worker was last told of it, null for never.
        told_at: the last event of its progress.
    pipeline, step: the pipeline that it is a step of, and which one from 1; "" and 0 for none.
    """

    __tablename__ = "job"
    id: Mapped[str] = mapped_column(primary_key=True)
    type: Mapped[str]
    spec: Mapped[Json]
    model: Mapped[str] = mapped_column(index=True)
    version: Mapped[int]
    sources: Mapped[Json]
    result_model: Mapped[str]
    result_version: Mapped[int | None]
    result_digest: Mapped[str]
    state: Mapped[str] = mapped_column(index=True)
    reason: Mapped[str] = mapped_column(Text())
    queue: Mapped[str]
    priority: Mapped[int]
    heavy: Mapped[bool]
    limits: Mapped[Json]
    attempt: Mapped[int]
    most_attempts: Mapped[int]
    owner: Mapped[str]
    machine: Mapped[str]
    fence: Mapped[int]
    lease_until: Mapped[datetime | None]
    cancel: Mapped[bool]
    fraction: Mapped[float]
    progress: Mapped[str] = mapped_column(Text())
    cost: Mapped[Json]
    by: Mapped[str]
    created_at: Mapped[datetime]
    not_before: Mapped[datetime]
    sent_at: Mapped[datetime | None]
    started_at: Mapped[datetime | None]
    told_at: Mapped[datetime | None]
    finished_at: Mapped[datetime | None]
    pipeline: Mapped[str] = mapped_column(index=True)
    step: Mapped[int]


class Pipeline(Table):
    """Steps that a push has declared for a version, one after the other;
    `control.jobs.policy.pipelines` has its states.

    model, version, digest: the version that was pushed. push: "" where it is not known.
    steps: documents, as `control.pipelines.steps` reads them. step: the one that it has come to,
        from 1. outcome: the rollout or alias that its last step has made, as the subject of an
        event, "" for none.
    """

    __tablename__ = "pipeline"
    id: Mapped[str] = mapped_column(primary_key=True)
    model: Mapped[str] = mapped_column(index=True)
    version: Mapped[int]
    digest: Mapped[str]
    push: Mapped[str]
    steps: Mapped[list[Any]] = mapped_column(JSON())
    step: Mapped[int]
    state: Mapped[str] = mapped_column(index=True)
    reason: Mapped[str] = mapped_column(Text())
    outcome: Mapped[str]
    by: Mapped[str]
    created_at: Mapped[datetime]
    finished_at: Mapped[datetime | None]


class JobOutput(Table):
    """What a job's last attempt printed and drew, bounded by `control.jobs.policy.output`.
    `points`: JSON of `CurvePoint`s."""

    __tablename__ = "job_output"
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id"), primary_key=True)
    log: Mapped[str] = mapped_column(Text())
    points: Mapped[bytes] = mapped_column(LargeBinary())


class JobTraffic(Table):
    """The requests that a profile sends again: `payload` is what `control.jobs.traffic`
    encodes. It goes when the job is done, and after a day."""

    __tablename__ = "job_traffic"
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id"), primary_key=True)
    payload: Mapped[bytes] = mapped_column(LargeBinary())


class JobReportRow(Table):
    """What a job found: `payload` is JSON of a `Report`. It outlives the job while a version that
    was made by it is there."""

    __tablename__ = "job_report"
    job_id: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    payload: Mapped[bytes] = mapped_column(LargeBinary())

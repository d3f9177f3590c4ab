"""The rows of offline jobs: each job's life, what it prints, and its report."""

from datetime import datetime

from sqlalchemy import ForeignKey, LargeBinary, Text
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


class JobOutput(Table):
    """What a job's last attempt printed and drew, bounded by `control.jobs.policy.output`.
    `points`: JSON of `CurvePoint`s."""

    __tablename__ = "job_output"
    job_id: Mapped[str] = mapped_column(ForeignKey("job.id"), primary_key=True)
    log: Mapped[str] = mapped_column(Text())
    points: Mapped[bytes] = mapped_column(LargeBinary())


class JobReportRow(Table):
    """What a job found: `payload` is JSON of a `Report`. It outlives the job while a version that
    was made by it is there."""

    __tablename__ = "job_report"
    job_id: Mapped[str] = mapped_column(primary_key=True)
    at: Mapped[datetime]
    payload: Mapped[bytes] = mapped_column(LargeBinary())

"""How long a claim lasts, what becomes of a job whose worker is gone, and who is told again.

Pure.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime, timedelta

from control.jobs.policy.states import JobState

LEASE = timedelta(seconds=30)
"""From a worker's last sign of life until somebody else may have its job."""

RESEND = timedelta(seconds=30)
"""A queued job that was told of longer ago is told of again: brokers lose messages."""

SWEEP_AT_ONCE = 100
MOST_ATTEMPTS = 3
FIRST_PAUSE, LONGEST_PAUSE = timedelta(seconds=5), timedelta(minutes=5)
"""Between two attempts; each pause is twice the one before."""


@dataclass(frozen=True, slots=True)
class Attempts:
    """How often a job was tried, how often it may be, and whether somebody wants it to end."""

    made: int
    most: int
    cancel: bool


@dataclass(frozen=True, slots=True)
class NextStep:
    """What becomes of a job whose attempt has failed; `not_before` for one that is tried again."""

    state: JobState
    not_before: datetime


def after_failure(attempts: Attempts, now: datetime) -> NextStep:
    """Tried again where attempts are left and nobody wants it to end."""
    if attempts.cancel:
        return NextStep(JobState.CANCELLED, now)
    if attempts.made >= attempts.most:
        return NextStep(JobState.FAILED, now)
    return NextStep(JobState.QUEUED, now + pause_after(attempts.made))


def pause_after(attempt: int) -> timedelta:
    """Before the next attempt, after attempt number `attempt` (from 1) has failed."""
    doublings = min(max(attempt - 1, 0), 16)
    return min(FIRST_PAUSE * float(2**doublings), LONGEST_PAUSE)


@dataclass(frozen=True, slots=True)
class SweptJob:
    """A job that waits or runs; `lease_until` is null of one that waits."""

    id: str
    state: JobState
    priority: int
    not_before: datetime
    sent_at: datetime | None
    lease_until: datetime | None


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """Ids of jobs: `reclaim`: whose worker is gone; `send`: that workers are to be told of."""

    reclaim: tuple[str, ...]
    send: tuple[str, ...]


def plan_sweep(jobs: Iterable[SweptJob], now: datetime) -> SweepPlan:
    """The most urgent first, at most SWEEP_AT_ONCE of each."""
    urgent = sorted(jobs, key=lambda job: (-job.priority, job.id))
    reclaim = tuple(job.id for job in urgent if _is_abandoned(job, now))
    send = tuple(job.id for job in urgent if _is_due(job, now))
    return SweepPlan(reclaim[:SWEEP_AT_ONCE], send[:SWEEP_AT_ONCE])


def _is_abandoned(job: SweptJob, now: datetime) -> bool:
    expired = job.lease_until is None or job.lease_until <= now
    return job.state == JobState.RUNNING and expired


def _is_due(job: SweptJob, now: datetime) -> bool:
    untold = job.sent_at is None or now - job.sent_at >= RESEND
    return job.state == JobState.QUEUED and job.not_before <= now and untold

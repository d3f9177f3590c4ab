"""Which queued job a worker takes next. Pure."""

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

HEAVY_TYPES = frozenset({"quantise", "quantise_llm", "prune", "distil", "profile"})
"""They keep all cores busy that they are given, or measure: each wants a machine to itself."""

USUAL_QUEUE = "default"
QUEUE_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
"""Of a queue, whole: every broker takes it as a part of a file's, a key's or a queue's name."""


@dataclass(frozen=True, slots=True)
class AdmissionRules:
    """What runs at once: of heavy jobs on a machine, and of one principal's anywhere; and how many
    of a principal's may wait or run."""

    heavy_per_machine: int = 1
    running_per_principal: int = 2
    unfinished_per_principal: int = 100


@dataclass(frozen=True, slots=True)
class WorkerIdentity:
    """Who claims: `name` is new with every start of a worker; `machine` is the same for all of one
    machine. It takes from `queues`."""

    name: str
    machine: str
    queues: frozenset[str] = frozenset({USUAL_QUEUE})


@dataclass(frozen=True, slots=True)
class QueuedJob:
    """A job that waits; ids sort by the time at which they were made."""

    id: str
    by: str
    queue: str
    priority: int
    heavy: bool
    not_before: datetime


@dataclass(frozen=True, slots=True)
class RunningJob:
    """A job that a worker on `machine` holds."""

    by: str
    machine: str
    heavy: bool


def next_job(
    queued: Iterable[QueuedJob],
    running: Sequence[RunningJob],
    worker: WorkerIdentity,
    rules: AdmissionRules,
    now: datetime,
) -> str | None:
    """The id of the job that `worker` takes: of those it may take now, the highest priority, then
    the oldest. None where there is none."""
    of_principal = Counter(one.by for one in running)
    heavy_here = sum(one.heavy for one in running if one.machine == worker.machine)
    ready = [
        job
        for job in queued
        if job.queue in worker.queues
        and job.not_before <= now
        and of_principal[job.by] < rules.running_per_principal
        and not (job.heavy and heavy_here >= rules.heavy_per_machine)
    ]
    best = min(ready, key=lambda job: (-job.priority, job.id), default=None)
    return best.id if best else None

"""Jobs as the control API and the workers see them. Pure."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from control.clock import Moment
from control.jobs.messages import CurvePoint
from control.jobs.policy.limits import JobCost, JobLimits
from control.jobs.policy.states import JobState


class SourceFolder(msgspec.Struct, frozen=True):
    """Where the files of a version that a job reads are.

    snapshot, digest: of a version in the store: the digest that names the snapshot, and the
        version's own; else "". folder: the model's folder, an absolute path on the machine of the
        server, of a version in a model repository that is a folder; else "".
    """

    model: str
    version: int
    snapshot: str = ""
    digest: str = ""
    folder: str = ""


class DueJob(msgspec.Struct, frozen=True):
    """A queued job that workers of its queue are to be told of."""

    id: str
    queue: str
    priority: int


class JobSourceView(msgspec.Struct, frozen=True):
    """A version that a job reads; `role` is "source" for the one that it works on, "files" for one
    whose data it reads; `digest` is "" for a version in a folder."""

    role: str
    model: str
    version: int
    digest: str


class JobResultView(msgspec.Struct, frozen=True):
    """What becomes of a job: a version of `model`; `version` is null and `digest` "" before."""

    model: str
    version: int | None
    digest: str


class JobView(msgspec.Struct, frozen=True, kw_only=True):
    """A job. `spec` has the fields of its type. `attempt` is 0 before the first; `machine` runs it,
    "" for nobody. `fraction`, 0 to 1, and `progress`: how far it is and what it does. `cancel`:
    somebody wants it to end. `reason`: why it failed, or waits for another attempt. `pipeline`,
    `step`: the pipeline that it is a step of, and which one from 1; "" and 0 for none."""

    id: str
    type: str
    state: JobState
    spec: dict[str, Any]
    sources: tuple[JobSourceView, ...]
    result: JobResultView
    reason: str
    fraction: float
    progress: str
    cancel: bool
    attempt: int
    most_attempts: int
    queue: str
    priority: int
    heavy: bool
    limits: JobLimits
    machine: str
    cost: JobCost
    by: str
    created_at: Moment
    started_at: Moment | None
    finished_at: Moment | None
    pipeline: str
    step: int


class JobLog(msgspec.Struct, frozen=True):
    """What a job's last attempt printed, at most 64 KiB of its end, and its curves so far."""

    text: Annotated[str, Meta(description="Lines, each with its end.")]
    points: tuple[CurvePoint, ...]

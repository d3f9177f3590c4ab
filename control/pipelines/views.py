"""Pipelines as the control API shows them. Pure."""

import msgspec

from control.clock import Moment
from control.jobs.policy.pipelines import PipelineState


class PipelineStepView(msgspec.Struct, frozen=True, kw_only=True):
    """A step. `type`: of its job, or "rollout" or "alias". `state`: of its job; "waiting" before
    the pipeline has come to it, "skipped" where it never will, "done" or "failed" for a rollout or
    an alias. `job`: its id, "" before. `model`, `version`: what the step has made, or has rolled
    out, "" and null before. `rollout`: the id of the one that it has begun, "" for none."""

    number: int
    type: str
    state: str
    job: str
    fraction: float
    model: str
    version: int | None
    rollout: str
    reason: str


class PipelineView(msgspec.Struct, frozen=True, kw_only=True):
    """The steps that a push has declared for a version. `step`: the one that it has come to, from
    1. `push`: its id. `reason`: why it has failed or was cancelled."""

    id: str
    model: str
    version: int
    digest: str
    push: str
    state: PipelineState
    reason: str
    step: int
    steps: tuple[PipelineStepView, ...]
    by: str
    created_at: Moment
    finished_at: Moment | None

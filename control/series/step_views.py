"""The steps of an ensemble as the control API shows them. Light, for the command line. Pure."""

import msgspec

from control.clock import Moment


class StepFigures(msgspec.Struct, frozen=True):
    """Calls of one step: `calls` in all, of which `answered`, `failed`, and `cancelled` because
    their request had ended. `calls_per_request` of the ensemble; of a step with a map, which calls
    its model for each element, these are its rows per request. `skipped`: how often it was left
    out; `skipped_share` of rows, 0 to 1. `rows_per_call` and the milliseconds are of calls that
    were answered; null where there is nothing to divide by."""

    calls: int
    answered: int
    failed: int
    cancelled: int
    skipped: int
    skipped_share: float | None
    calls_per_s: float
    calls_per_request: float | None
    rows_per_call: float | None
    error_rate: float | None
    latency_ms_p50: float | None
    latency_ms_p95: float | None
    latency_ms_p99: float | None
    queue_ms: float | None
    compute_ms: float | None


class EnsembleStepView(msgspec.Struct, frozen=True):
    """A step, from 0. `model` that it calls, perhaps a route or MODEL@ALIAS; `version` "" for any.
    `inputs`: of the model → the ensemble's tensor; `outputs` likewise. `condition`: "" for always;
    `mapped`: the tensor for each of whose elements it runs, "" where it runs once. `decoupled`:
    whether what follows runs for each of its responses."""

    number: int
    model: str
    version: str
    inputs: dict[str, str]
    outputs: dict[str, str]
    condition: str
    mapped: str
    decoupled: bool
    figures: StepFigures


class EnsembleStepsView(msgspec.Struct, frozen=True):
    """The graph of an ensemble as this server has it loaded, and what its steps did on all servers
    (or the one that was asked for) from `since` to `until`: `requests` of the ensemble, of which
    `failed`. `inputs` and `outputs` are the names of its own tensors."""

    model: str
    version: int
    since: Moment
    until: Moment
    requests: int
    failed: int
    inputs: list[str]
    outputs: list[str]
    steps: list[EnsembleStepView]

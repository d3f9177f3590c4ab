"""Experiments as the control API answers them. Pure."""

from collections.abc import Mapping
from enum import StrEnum

import msgspec

from control.clock import Moment
from control.experiments.evaluation import ExperimentDecision
from control.experiments.metrics import Metric
from control.experiments.terms import ExperimentArm
from control.statistics.srm import SampleRatio


class ExperimentState(StrEnum):
    DRAFT = "draft"
    RUNNING = "running"
    STOPPED = "stopped"  # no new units; what exposed units do still counts for a while
    CONCLUDED = "concluded"


class Conclusion(msgspec.Struct, frozen=True):
    """What was decided, by whom, and what the numbers said."""

    decision: str
    verdict: str
    by: str
    at: Moment


class ExperimentDocument(msgspec.Struct, frozen=True, kw_only=True):
    """An experiment. `buckets`: the first of its namespace's and the one after the last, 0 and 0
    before it first runs; `by` is who made it."""

    id: str
    name: str
    route: str
    state: ExperimentState
    arms: tuple[ExperimentArm, ...]
    metrics: tuple[Metric, ...]
    alpha: float
    horizon: int
    namespace: str
    share_percent: float
    window_s: float
    buckets: tuple[int, int]
    by: str
    created_at: Moment
    started_at: Moment | None
    stopped_at: Moment | None
    conclusion: Conclusion | None
    revision: int


class ComparisonOfArm(msgspec.Struct, frozen=True, kw_only=True):
    """An arm against the control, in one metric; null for what is not known or has no end."""

    metric: str
    arm: str
    value: float | None
    control_value: float | None
    n: int
    estimate: float | None
    lower: float | None
    upper: float | None
    p_value: float
    adjusted: float
    decision: ExperimentDecision
    sentence: str


class AnalysisView(msgspec.Struct, frozen=True, kw_only=True):
    """How an experiment stands, in numbers and words. `progress`: units seen over the horizon;
    `crossed`: share of units seen in two arms."""

    control: str
    units: Mapping[str, int]
    progress: float
    crossed: float
    sample_ratio: SampleRatio
    comparisons: tuple[ComparisonOfArm, ...]
    verdict: str


class PointView(msgspec.Struct, frozen=True):
    """An interval `at` a moment; None for a bound that does not end."""

    at: Moment
    units: int
    estimate: float | None
    lower: float | None
    upper: float | None
    decision: str

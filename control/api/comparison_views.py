"""What rollouts and experiments show where their JSON is not just their fields."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from control.experiments.evaluation import Analysis
from control.experiments.service import ExperimentView
from control.rollouts.views import RolloutView, Standing


@dataclass(frozen=True, slots=True)
class VerdictOfGuardrail:
    """What a guardrail says, and from which numbers."""

    guardrail: str
    outcome: str
    words: str
    numbers: dict[str, float | None]


@dataclass(frozen=True, slots=True)
class OutcomesOfArm:
    """What an arm has answered; latencies in seconds."""

    requests: int
    errors: int
    not_a_number: int
    empty: int
    p50_s: float | None
    p95_s: float | None
    p99_s: float | None


@dataclass(frozen=True, slots=True)
class OutcomesOfArms:
    """Of a rollout; `mirrored`: of copies the candidate got."""

    stable: OutcomesOfArm
    candidate: OutcomesOfArm
    mirrored: OutcomesOfArm


@dataclass(frozen=True, slots=True)
class ArmOfExperiment:
    """`share` of the units of all arms; `version` 0: whichever is served."""

    name: str
    share: float
    model: str
    version: int


@dataclass(frozen=True, slots=True)
class MetricOfExperiment:
    """What is measured, declared before it starts."""

    name: str
    kind: str
    direction: str
    minimal_effect: float
    source: str
    missing: str
    repeated: str
    quantile: float | None


@dataclass(frozen=True, slots=True)
class Conclusion:
    """What was decided, by whom, and what the numbers said."""

    decision: str
    verdict: str
    by: str
    at: datetime


@dataclass(frozen=True, slots=True)
class ComparisonOfArm:
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
    decision: str
    sentence: str


TRIALS: dict[type, dict[str, Any]] = {
    RolloutView: {"plan": dict[str, Any]},
    Standing: {"verdicts": list[VerdictOfGuardrail], "arms": OutcomesOfArms},
    ExperimentView: {
        "terms": None,
        "buckets": list[int],
        "conclusion": Conclusion | None,
        "arms": list[ArmOfExperiment],
        "metrics": list[MetricOfExperiment],
        "alpha": float,
        "horizon": int,
        "namespace": str,
        "share_percent": float,
        "window_s": float,
    },
    Analysis: {
        "units": dict[str, int],
        "comparisons": list[ComparisonOfArm],
        "verdict": str,
    },
}
"""By view; a field of None is not shown."""

"""What a rollout does and when it stops: steps, holds, samples, guardrails. Pure.

`control.rollouts.plan_keys` reads a plan from a model's config or from JSON.
"""

from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import msgspec

from control.text import stored_json

BUCKETS = 10_000
"""The whole of a name's traffic; a weight is a number of buckets, so a percent has two decimals."""

HOLD_S, MIN_SAMPLE = 300.0, 2_000
MIRROR_SAMPLE = 200


class Mode(StrEnum):
    """Who moves a rollout on."""

    IMMEDIATE = "immediate"  # all traffic as soon as the candidate is ready
    MANUAL = "manual"  # a person promotes every step; guardrails still take it back
    PROGRESSIVE = "progressive"  # by itself


@dataclass(frozen=True, slots=True)
class RolloutStep:
    """`weight` in buckets; over when `hold_s` seconds have passed and both arms have answered
    `min_sample` requests."""

    weight: int
    hold_s: float = HOLD_S
    min_sample: int = MIN_SAMPLE


@dataclass(frozen=True, slots=True)
class Guardrails:
    """What takes a candidate back; everything is relative to the stable arm at the same time.

    `window_s`: how long an analysis window is at least. `error_margin` and `breaker_share` are
    shares of requests (0 to 1). `latency_ratio` and `latency_pause_ratio` are for the bounds of the
    interval, which is looked at after `latency_windows` windows. `memory_ratio`: resident
    over declared memory; `memory_mib` is what a worker of the candidate is declared to hold, 0 for
    nothing declared. `label_psi`: PSI between the labels that both versions give, 0 for not looked
    at; it is required, and takes `label_sample` labels of each.
    """

    window_s: float = 30.0
    error_margin: float = 0.005
    latency_ratio: float = 1.25
    latency_pause_ratio: float = 1.10
    latency_windows: int = 5
    breaker_requests: int = 20
    breaker_share: float = 0.5
    memory_ratio: float = 1.2
    memory_mib: int = 0
    label_psi: float = 0.0
    label_sample: int = 500


class StepView(msgspec.Struct, frozen=True):
    """A step of a plan; `weight` in percent, `hold` in seconds."""

    weight: float
    hold: float
    min_sample: int


class PlanView(msgspec.Struct, frozen=True, kw_only=True):
    """A plan with the keys of docs/rollouts.md: shares in percent, times in seconds; the last of
    the steps is the one in which all traffic is watched."""

    mode: Mode
    mirror: float
    mirror_hold: float
    mirror_sample: int
    steps: tuple[StepView, ...]
    window: float
    error_margin: float
    latency_ratio: float
    latency_pause_ratio: float
    latency_windows: int
    breaker_requests: int
    breaker_share: float
    memory_ratio: float
    memory_mib: int
    label_drift: float
    label_sample: int
    prewarm: float
    no_data: float
    undecided: float
    rollback_window: int


@dataclass(frozen=True, slots=True)
class RolloutPlan:
    """`mirror`: copies of requests before the first step, None for none. `last`: how long all
    traffic is watched before the candidate is called healthy. `prewarm_s`: how long the candidate
    may take to be ready everywhere. `no_data_s`: how long a step may be without new requests.
    `undecided_s`: how long it may wait for a guardrail alone, or as long as it took until then.
    `rollback_window`: so many versions back a version takes over without steps."""

    mode: Mode = Mode.PROGRESSIVE
    mirror: RolloutStep | None = RolloutStep(500, HOLD_S, MIRROR_SAMPLE)
    steps: tuple[RolloutStep, ...] = (
        RolloutStep(100),
        RolloutStep(500),
        RolloutStep(2_500),
        RolloutStep(5_000),
    )
    last: RolloutStep = RolloutStep(BUCKETS)
    guardrails: Guardrails = field(default_factory=Guardrails)
    prewarm_s: float = 600.0
    no_data_s: float = 600.0
    undecided_s: float = 900.0
    rollback_window: int = 3

    def without_mirror(self) -> "RolloutPlan":
        """For a model with sequences or state, of which a copy would be another request."""
        return replace(self, mirror=None)

    def view(self) -> PlanView:
        rails = self.guardrails
        return PlanView(
            mode=self.mode,
            mirror=percent(self.mirror.weight) if self.mirror else 0,
            mirror_hold=self.mirror.hold_s if self.mirror else 0,
            mirror_sample=self.mirror.min_sample if self.mirror else MIRROR_SAMPLE,
            steps=tuple(
                StepView(percent(step.weight), step.hold_s, step.min_sample)
                for step in (*self.steps, self.last)
            ),
            window=rails.window_s,
            error_margin=rails.error_margin * 100,
            latency_ratio=rails.latency_ratio,
            latency_pause_ratio=rails.latency_pause_ratio,
            latency_windows=rails.latency_windows,
            breaker_requests=rails.breaker_requests,
            breaker_share=rails.breaker_share * 100,
            memory_ratio=rails.memory_ratio,
            memory_mib=rails.memory_mib,
            label_drift=rails.label_psi,
            label_sample=rails.label_sample,
            prewarm=self.prewarm_s,
            no_data=self.no_data_s,
            undecided=self.undecided_s,
            rollback_window=self.rollback_window,
        )

    def as_json(self) -> dict[str, Any]:
        """In the form that `control.rollouts.plan_keys.parse_plan` reads."""
        found: dict[str, Any] = stored_json(self.view())
        return found


def percent(weight: int) -> float:
    """Of all traffic."""
    return weight * 100 / BUCKETS

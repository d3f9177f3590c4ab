"""Analysis windows: when one is full it is judged, and the next one begins. Pure.

A window lasts a time and has a number of answers of each arm, whichever takes longer.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from control.rollouts.arms import ArmTotals, RolloutTotals, Stratum, latency_since
from control.rollouts.plan import Guardrails, Mode, RolloutPlan, RolloutStep, percent
from control.rollouts.state import GuardrailWindows, LatencyWindow, Phase, RolloutState
from control.statistics.histogram import Histogram, lasting_quantile_ratio

SURE_Z = 2.0
"""By so many standard errors must more of the candidate's answers take longer than the stable
version's quantile, for a window to count as slow: with as few answers as a window needs, every
seventh of two identical arms with long tails has a quantile 1.25 times as long."""

LATENCY_ALPHA = 0.05
"""Of the interval for pausing, over a whole step."""


@dataclass(frozen=True, slots=True)
class LatencyGuard:
    """A quantile that is watched; `sample`: answers of each arm in a window."""

    name: str
    quantile: float
    sample: int


P95 = LatencyGuard("p95", 0.95, 200)
P99 = LatencyGuard("p99", 0.99, 1_000)


def awaits_first(state: RolloutState) -> bool:
    """Whether this phase is to have a window of p95 before it ends, and has had none yet.

    A sample of so many requests may bring fewer latencies, as failed ones have none, and a hold may
    be shorter than a window: then the phase goes on, instead of ending unwatched. A plan that asks
    for fewer answers than a window needs does without, which `latency_gaps` says.
    """
    beside = state.place in (Phase.MIRROR, Phase.STEP)
    return beside and state.min_sample >= P95.sample and state.windows.p95.ratio is None


def latency_gaps(plan: RolloutPlan) -> tuple[str, ...]:
    """Where a rollout of this plan may go on without having compared latencies, in words."""
    if plan.mode is Mode.IMMEDIATE:
        return ()
    gaps = [
        f"{name} ends with {step.min_sample} answers of each arm, too few to compare latencies: "
        f"p95 needs {P95.sample}; set {key} to {P95.sample} or more, or watch it yourself"
        for name, step, key in _compared(plan)
        if step.min_sample < P95.sample
    ]
    if all(step.min_sample < P95.sample for step in plan.steps):
        gaps.append("so a slow candidate can take over without being noticed")
    return tuple(gaps)


def _compared(plan: RolloutPlan) -> Iterator[tuple[str, RolloutStep, str]]:
    if plan.mirror is not None:
        yield "mirroring", plan.mirror, "mirror_sample"
    for step in plan.steps:
        yield f"the step of {percent(step.weight):g} %", step, "min_sample"


@dataclass(frozen=True, slots=True)
class _Pair:
    control: Histogram
    candidate: Histogram

    def since(self, earlier: "_Pair") -> "_Pair":
        return _Pair(
            latency_since(self.control, earlier.control),
            latency_since(self.candidate, earlier.candidate),
        )

    def ratio(self, quantile: float) -> float:
        """The candidate's over the control's."""
        return self.candidate.quantile(quantile) / self.control.quantile(quantile)


def tried(arms: RolloutTotals, place: Phase) -> ArmTotals:
    """The arm that stands for the candidate."""
    return arms.mirrored if place is Phase.MIRROR else arms.candidate


def opened(
    arms: RolloutTotals, place: Phase, now: float, strata: tuple[Stratum, ...] = ()
) -> GuardrailWindows:
    """Of a phase that begins now. `strata`: the ended steps of this rollout."""
    arm = tried(arms, place)
    tail = LatencyWindow(now, arms.control.latency, arm.latency)
    return GuardrailWindows(arms, strata, tail, tail, now, arm.counts)


def closed(state: RolloutState, arms: RolloutTotals, now: float) -> GuardrailWindows:
    """Latency windows that are full have been judged, and others opened."""
    windows, rails = state.windows, state.plan.guardrails
    here = _pair(arms, state.place)
    if not any(_full(*one, rails, here, now) for one in ((windows.p95, P95), (windows.p99, P99))):
        return windows
    so_far = here.since(_pair(windows.base, state.place))
    return replace(
        windows,
        p95=_closed(windows.p95, P95, rails, here, so_far, now),
        p99=_closed(windows.p99, P99, rails, here, so_far, now),
    )


def refreshed(state: RolloutState, arms: RolloutTotals, now: float) -> GuardrailWindows:
    """The fast breaker's window begins anew when it is over."""
    windows = state.windows
    if now - windows.recent_since < state.plan.guardrails.window_s:
        return windows
    return replace(windows, recent_since=now, recent=tried(arms, state.place).counts)


def _pair(arms: RolloutTotals, place: Phase) -> _Pair:
    return _Pair(arms.control.latency, tried(arms, place).latency)


def _full(
    tail: LatencyWindow, guard: LatencyGuard, rails: Guardrails, here: _Pair, now: float
) -> bool:
    if now - tail.since < rails.window_s:
        return False
    answers = (here.control.n - tail.control.n, here.candidate.n - tail.candidate.n)
    return min(answers) >= guard.sample


def _closed(
    tail: LatencyWindow,
    guard: LatencyGuard,
    rails: Guardrails,
    here: _Pair,
    so_far: _Pair,
    now: float,
) -> LatencyWindow:
    if not _full(tail, guard, rails, here, now):
        return tail
    window = here.since(_Pair(tail.control, tail.candidate))
    ratio = window.ratio(guard.quantile)
    slow = tail.slow + 1 if ratio > rails.latency_ratio and _slower(guard, window) else 0
    return LatencyWindow(
        now, here.control, here.candidate, slow, ratio, _surely_slower(guard, so_far)
    )


def _slower(guard: LatencyGuard, window: _Pair) -> bool:
    bucket = window.control.bucket_of(guard.quantile)
    late, late_control = window.candidate.beyond(bucket), window.control.beyond(bucket)
    n, n_control = window.candidate.n, window.control.n
    rate = (late + late_control) / (n + n_control)
    error = math.sqrt(rate * (1 - rate) * (1 / n + 1 / n_control))
    return late / n - late_control / n_control > SURE_Z * error


def _surely_slower(guard: LatencyGuard, so_far: _Pair) -> float:
    """The lower bound of the ratio over the phase; 0.0, unasked, where it is not slower at all."""
    if so_far.ratio(guard.quantile) <= 1.0:
        return 0.0
    pair = (so_far.candidate, so_far.control)
    return lasting_quantile_ratio(*pair, guard.quantile, LATENCY_ALPHA).lower

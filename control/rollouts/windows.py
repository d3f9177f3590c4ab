"""Analysis windows: when one is full it is judged, and the next one begins. Pure.

A window lasts a time and has a number of answers of each arm, whichever takes longer.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace

from control.rollouts.arms import ArmTotals, RolloutTotals, Stratum, latency_since
from control.rollouts.plan import Guardrails, Mode, RolloutPlan, RolloutStep, percent
from control.rollouts.state import GuardrailWindows, LatencyWindow, Phase, RolloutState
from control.statistics.histogram import BUCKET_LOG_WIDTH, Histogram
from control.statistics.paired import mean_interval
from control.statistics.sequential import Interval, Moments

LATENCY_ALPHA = 0.10
"""Two-sided, so 5 % for the side that counts: over a whole phase, however often one looks."""

FEWEST_WINDOWS = 4
"""With fewer, the interval has no bounds."""

COARSENESS = BUCKET_LOG_WIDTH / math.sqrt(6)
"""The standard deviation of a log ratio that two buckets alone make."""


@dataclass(frozen=True, slots=True)
class LatencyGuard:
    """A quantile that is compared window by window. `sample`: answers of each arm in a window;
    `required_from`: it must have decided before a phase with at least this minimum sample ends;
    `subject`: what it is of, in words."""

    name: str
    quantile: float
    sample: int
    required_from: int
    subject: str


COMPUTE = LatencyGuard("compute", 0.10, 50, 200, "the computing time of its quickest tenth")
"""Of the time since an execution began, which is the version's own. What waits in queues and what
bursts of other work add to it is the same for both arms and hides the rest, but least where a
request was disturbed least: with turns on a core that took 100 ms on average, a version that needs
30 ms instead of 15 was noticed in 200 of 200 simulated runs by this, in 116 by the lower quartile.
"""

P95 = LatencyGuard("p95", 0.95, 50, 200, "its p95")
P99 = LatencyGuard("p99", 0.99, 250, 5_000, "its p99")
"""With 2,000 answers of each arm it rests on 20 requests, which on a busy machine cannot tell 1.0
from 1.25: 7 % of equal candidates waited for it in vain there, and half on an overloaded one."""

LATENCIES = (COMPUTE, P95, P99)


@dataclass(frozen=True, slots=True)
class RatioEstimate:
    """The candidate's quantile over the control's, over the windows of a phase, with the interval
    that one may always look at."""

    ratio: float
    interval: Interval


def estimate(ratios: Moments) -> RatioEstimate:
    """From the logarithms of the windows' ratios; of at least one window."""
    found = mean_interval(ratios, LATENCY_ALPHA, COARSENESS)
    return RatioEstimate(
        math.exp(ratios.mean), Interval(math.exp(found.lower), math.exp(found.upper))
    )


def beside(state: RolloutState) -> bool:
    """Whether the stable version answers at the same time, so that latencies can be compared."""
    return state.place in (Phase.MIRROR, Phase.STEP)


def required(state: RolloutState, arms: RolloutTotals, guard: LatencyGuard) -> bool:
    """Whether the phase is not left before this has decided.

    A plan that asks for fewer answers does without, which `latency_gaps` says; and a gateway of an
    older build counts no computing time.
    """
    if not beside(state) or state.min_sample < guard.required_from:
        return False
    return guard is not COMPUTE or arms.control.compute.n > 0 or not arms.control.latency.n


def latency_gaps(plan: RolloutPlan) -> tuple[str, ...]:
    """Where a rollout of this plan may go on without having compared latencies, in words."""
    if plan.mode is Mode.IMMEDIATE:
        return ()
    gaps = [
        f"{name} ends with {step.min_sample} answers of each arm, too few to compare latencies: "
        f"p95 needs {P95.required_from}; set {key} to {P95.required_from} or more, or watch it "
        "yourself"
        for name, step, key in _compared(plan)
        if step.min_sample < P95.required_from
    ]
    if all(step.min_sample < P95.required_from for step in plan.steps):
        gaps.append("so a slow candidate can take over without being noticed")
    return tuple(gaps)


def _compared(plan: RolloutPlan) -> Iterator[tuple[str, RolloutStep, str]]:
    if plan.mirror is not None:
        yield "mirroring", plan.mirror, "mirror_sample"
    for step in plan.steps:
        yield f"the step of {percent(step.weight):g} %", step, "min_sample"


def tried(arms: RolloutTotals, place: Phase) -> ArmTotals:
    """The arm that stands for the candidate."""
    return arms.mirrored if place is Phase.MIRROR else arms.candidate


def opened(
    arms: RolloutTotals, place: Phase, now: float, strata: tuple[Stratum, ...] = ()
) -> GuardrailWindows:
    """Of a phase that begins now. `strata`: the ended steps of this rollout."""
    latencies = {guard.name: _begun(guard, arms, place, now) for guard in LATENCIES}
    return GuardrailWindows(arms, strata, latencies, now, tried(arms, place).counts)


def closed(state: RolloutState, arms: RolloutTotals, now: float) -> GuardrailWindows:
    """Latency windows that are full have been judged, and others opened."""
    windows, rails = state.windows, state.plan.guardrails
    found = {
        guard.name: _closed(guard, windows.latencies.get(guard.name), rails, arms, state.place, now)
        for guard in LATENCIES
    }
    if all(one is windows.latencies.get(name) for name, one in found.items()):
        return windows
    return replace(windows, latencies=found)


def refreshed(state: RolloutState, arms: RolloutTotals, now: float) -> GuardrailWindows:
    """The fast breaker's window begins anew when it is over."""
    windows = state.windows
    if now - windows.recent_since < state.plan.guardrails.window_s:
        return windows
    return replace(windows, recent_since=now, recent=tried(arms, state.place).counts)


def _begun(
    guard: LatencyGuard,
    arms: RolloutTotals,
    place: Phase,
    now: float,
) -> LatencyWindow:
    return LatencyWindow(now, *_pair(guard, arms, place))


def _pair(guard: LatencyGuard, arms: RolloutTotals, place: Phase) -> tuple[Histogram, Histogram]:
    pair = arms.control, tried(arms, place)
    if guard is COMPUTE:
        return pair[0].compute, pair[1].compute
    return pair[0].latency, pair[1].latency


def _closed(
    guard: LatencyGuard,
    window: LatencyWindow | None,
    rails: Guardrails,
    arms: RolloutTotals,
    place: Phase,
    now: float,
) -> LatencyWindow:
    if window is None:
        return _begun(guard, arms, place, now)
    control, candidate = _pair(guard, arms, place)
    answers = (control.n - window.control.n, candidate.n - window.candidate.n)
    if now - window.since < rails.window_s or min(answers) < guard.sample:
        return window
    pair = latency_since(control, window.control), latency_since(candidate, window.candidate)
    log_ratio = _log_ratio(guard.quantile, *pair)
    ratios = window.ratios.merged(Moments(1, log_ratio))
    return LatencyWindow(now, control, candidate, ratios, math.exp(log_ratio))


def _log_ratio(quantile: float, control: Histogram, candidate: Histogram) -> float:
    """At the level where the quantile of the smaller arm is expected (Blom's): that of few answers
    lies closer to the middle than that of many, and would make the smaller arm look quicker."""
    fewer = min(control.n, candidate.n)
    level = (math.ceil(quantile * fewer) - 0.375) / (fewer + 0.25)
    return math.log(candidate.quantile(level) / control.quantile(level))

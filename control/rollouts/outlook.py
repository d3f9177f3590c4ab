"""What a plan can tell of a candidate at the traffic that there is, and how long it takes. Pure.

Said when a rollout begins, so that nobody trusts a verdict that its requests could not give.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from control.rollouts.arms import OutcomeCounts, Stratum, compared
from control.rollouts.guardrails import FAIL_ALPHA
from control.rollouts.plan import BUCKETS, Mode, RolloutPlan, RolloutStep, percent
from control.rollouts.windows import FEWEST_WINDOWS, LATENCIES, latency_gaps
from control.statistics.sequential import difference_of_rates

RECENT_S = 900
"""Of the past that the traffic is taken from."""

MOST_POINTS = 50.0
"""A candidate that fails so much more often than the stable version is the fast breaker's."""

_MIRRORING = "mirroring"


@dataclass(frozen=True, slots=True)
class RecentRequests:
    """Of the name, lately: those that its rollout would count, and how many of them failed."""

    seconds: float
    requests: int
    errors: int

    @property
    def per_s(self) -> float:
        return self.requests / self.seconds

    @property
    def error_rate(self) -> float:
        return self.errors / self.requests if self.requests else 0.0


@dataclass(frozen=True, slots=True)
class WatchedSignals:
    """`labels`: the model's drift is watched; `experiment`: one with feedback compares the arms."""

    labels: bool = False
    experiment: bool = False


class StepOutlook(msgspec.Struct, frozen=True):
    """A phase in which both arms answer: "mirroring", or "the step of 5 %". `requests_per_s` of the
    arm that gets fewer; `takes_s`: until hold, sample and required latencies are through, null
    without traffic; `latency`: the latencies that must have decided before it ends."""

    name: str
    requests_per_s: float
    takes_s: float | None
    latency: tuple[str, ...]


class RolloutOutlook(msgspec.Struct, frozen=True):
    """At the traffic of the last quarter of an hour. `takes_s`: until the candidate is the stable
    version, if nothing is worse; null where there is no traffic or a person promotes.
    `errors_points`: a candidate of whose requests so many more percent fail is rolled back in nine
    of ten runs; null where no such difference is found. `cannot`: what is not noticed, in words."""

    requests_per_s: float
    error_rate: float
    takes_s: float | None
    errors_points: float | None
    steps: tuple[StepOutlook, ...]
    cannot: tuple[str, ...]
    words: tuple[str, ...]


def outlook(
    plan: RolloutPlan, recent: RecentRequests, watched: WatchedSignals, straight: str = ""
) -> RolloutOutlook:
    """`words` say the same as the numbers, `cannot` included. `straight`: why it has no steps, ""
    if it has."""
    if straight:
        alone = (f"{straight}: all traffic goes to the candidate, and nothing is compared",)
        return RolloutOutlook(recent.per_s, recent.error_rate, None, None, (), alone, alone)
    steps = tuple(_step(plan, name, step, recent.per_s) for name, step in _phases(plan))
    whole = _takes_s(plan, steps, recent.per_s)
    points = _errors_points(plan, steps, recent)
    cannot = tuple(_cannot(plan, steps, recent, watched))
    words = tuple(_words(plan, recent, steps, whole, points))
    return RolloutOutlook(
        requests_per_s=recent.per_s,
        error_rate=recent.error_rate,
        takes_s=whole if plan.mode is Mode.PROGRESSIVE else None,
        errors_points=points,
        steps=steps,
        cannot=cannot,
        words=(*words, *cannot),
    )


def _phases(plan: RolloutPlan) -> Iterator[tuple[str, RolloutStep]]:
    """Those in which both arms answer."""
    if plan.mirror is not None:
        yield _MIRRORING, plan.mirror
    for step in plan.steps:
        if step.weight < BUCKETS:
            yield f"the step of {percent(step.weight):g} %", step


def _step(plan: RolloutPlan, name: str, step: RolloutStep, per_s: float) -> StepOutlook:
    weight = step.weight / BUCKETS
    share = weight if name == _MIRRORING else min(weight, 1 - weight)
    required = [one for one in LATENCIES if step.min_sample >= one.required_from]
    windows = max(plan.guardrails.latency_windows, FEWEST_WINDOWS)
    rate = per_s * share
    takes_s = None
    if rate:
        latency_s = [windows * max(plan.guardrails.window_s, one.sample / rate) for one in required]
        takes_s = max(step.hold_s, step.min_sample / rate, *latency_s)
    return StepOutlook(name, rate, takes_s, tuple(one.name for one in required))


def _takes_s(plan: RolloutPlan, steps: tuple[StepOutlook, ...], per_s: float) -> float | None:
    if not per_s:
        return None
    last_s = max(plan.last.hold_s, plan.last.min_sample / per_s)
    return sum(step.takes_s or 0.0 for step in steps) + last_s


def _errors_points(
    plan: RolloutPlan, steps: tuple[StepOutlook, ...], recent: RecentRequests
) -> float | None:
    """To a tenth of a point, of those that are found with half of the requests: with just enough
    every second is noticed, with twice as many nearly each (docs/rollouts.md)."""
    if not recent.per_s:
        return None
    weights = [step.weight / BUCKETS for name, step in _phases(plan) if name != _MIRRORING]
    answering = [one for one in steps if one.name != _MIRRORING]
    half = [
        (weight, (one.takes_s or 0.0) * recent.per_s / 2)
        for weight, one in zip(weights, answering, strict=True)
    ]
    low, high = 0, round(MOST_POINTS * 10)
    if not _is_noticed(plan, half, recent.error_rate, high / 1000):
        return None
    while high - low > 1:
        middle = (low + high) // 2
        if _is_noticed(plan, half, recent.error_rate, middle / 1000):
            high = middle
        else:
            low = middle
    return high / 10


def _is_noticed(
    plan: RolloutPlan, steps: list[tuple[float, float]], base: float, more: float
) -> bool:
    """If as many fail as are to be expected. `steps`: the candidate's share, and requests."""
    found = compared(
        (
            Stratum(_failing(n * weight, min(1.0, base + more)), _failing(n * (1 - weight), base))
            for weight, n in steps
        ),
        "errors",
    )
    if found is None:
        return False
    interval = difference_of_rates(
        found.bad_candidate, found.n_candidate, found.bad_control, found.n_control, FAIL_ALPHA
    )
    return interval.lower > plan.guardrails.error_margin


def _failing(requests: float, rate: float) -> OutcomeCounts:
    return OutcomeCounts(round(requests), round(requests * rate))


def _words(
    plan: RolloutPlan,
    recent: RecentRequests,
    steps: tuple[StepOutlook, ...],
    takes_s: float | None,
    points: float | None,
) -> Iterator[str]:
    if takes_s is None:
        yield (
            f"no request came in the last {span(RECENT_S)}: without traffic nothing is promoted, "
            f"and after {span(plan.no_data_s)} of a step the rollout pauses"
        )
        return
    yield f"at {recent.per_s:.3g} requests/s it takes {_about(plan, takes_s)} if nothing is worse"
    if points is None:
        yield "so few requests show no difference in errors but what trips the fast breaker"
    else:
        yield (
            f"errors: a candidate that fails {points:g} points more of its requests is rolled back "
            "in nine of ten runs at least; one that fails fewer, less often"
        )
    ratio = plan.guardrails.latency_ratio
    for name in (one.name for one in LATENCIES):
        named = [step.name for step in steps if name in step.latency]
        if named:
            where = "every step" if len(named) == len(steps) else ", ".join(named)
            yield f"{name}: more than {ratio:g} × the stable version's is noticed in {where}"


def _about(plan: RolloutPlan, takes_s: float) -> str:
    if plan.mode is Mode.MANUAL:
        return f"{span(takes_s)} beside what it waits for you at each step"
    return f"about {span(takes_s)}"


def _cannot(
    plan: RolloutPlan,
    steps: tuple[StepOutlook, ...],
    recent: RecentRequests,
    watched: WatchedSignals,
) -> Iterator[str]:
    rails = plan.guardrails
    yield from latency_gaps(plan)
    if all("p99" not in step.latency for step in steps):
        yield "p99 holds no step: that takes a min_sample of 5,000"
    few = [
        step for step in steps if 0 < step.requests_per_s * rails.window_s < rails.breaker_requests
    ]
    if few:
        worst = min(few, key=lambda step: step.requests_per_s)
        yield (
            f"the fast breaker does not trip in {', '.join(step.name for step in few)}: it needs "
            f"{rails.breaker_requests} requests within {span(rails.window_s)}, and the candidate "
            f"gets {worst.requests_per_s * rails.window_s:.2g}"
        )
    if not rails.memory_mib:
        yield "memory is not judged: the plan declares none (memory_mib)"
    if not rails.label_psi:
        yield "other labels are not noticed: label_drift is not set, and no answer is compared"
    elif not watched.labels:
        yield "label_drift cannot judge: the model's drift is not watched (`modelyard drift watch`)"
    if not watched.experiment:
        yield "no business metric: no running experiment with feedback compares the arms"


def span(seconds: float) -> str:
    """ "45 seconds", "12 minutes", "3.5 hours", "2 days"."""
    for unit, name in ((86_400.0, "day"), (3_600.0, "hour"), (60.0, "minute")):
        if seconds >= 2 * unit or (seconds >= unit and seconds % unit == 0):
            number = f"{seconds / unit:.2g}" if seconds < 100 * unit else f"{seconds / unit:,.0f}"
            return f"{number} {name}" + ("" if number == "1" else "s")
    return f"{seconds:.3g} second" + ("" if seconds == 1 else "s")

"""Whether a candidate does worse than the stable version beside it: a table of verdicts. Pure.

Counts are looked at as often as one likes: the intervals are always-valid.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import msgspec

from control.drift.labels import LabelComparison
from control.rollouts.arms import RateComparison, RolloutTotals, Stratum, compared
from control.rollouts.plan import Guardrails
from control.rollouts.state import Phase, RolloutState
from control.rollouts.windows import (
    FEWEST_WINDOWS,
    LATENCIES,
    LatencyGuard,
    RatioEstimate,
    beside,
    estimate,
    required,
    tried,
)
from control.statistics.sequential import Interval, difference_of_rates

FAIL_ALPHA = 0.10
"""Two-sided, so 5 % for the side that counts: over the whole rollout."""

STEP_ALPHA = 0.02
"""For each step by itself, which notices what only began in it."""

PAUSE_ALPHA = 0.20
"""A pause costs less than an abort, and half the margin is between it and a candidate alike."""

OUTPUT_ALPHA = 0.02
"""For outputs that are not numbers, or empty: any difference counts, so it must be certain."""


class GuardrailOutcome(StrEnum):
    OK = "ok"
    WAITING = "waiting"  # too few requests so far, or it could be either
    INCONCLUSIVE = "inconclusive"  # what was given is no number
    PAUSE = "pause"
    FAIL = "fail"


class VerdictOfGuardrail(msgspec.Struct, frozen=True):
    """What a guardrail says, and from which numbers; null for what is no number or infinite.
    `required`: while it waits, the phase is not left."""

    guardrail: str
    outcome: GuardrailOutcome
    words: str
    numbers: Mapping[str, float | None]
    required: bool = False


@dataclass(frozen=True, slots=True)
class GuardrailVerdict:
    """Of one guardrail, in words and numbers; rates are shares of requests. `required`: while it
    waits, the phase is not left."""

    guardrail: str
    outcome: GuardrailOutcome
    words: str
    numbers: dict[str, float]
    required: bool = False

    @property
    def holds(self) -> bool:
        """Whether the phase has to wait for it."""
        return self.required and self.outcome is GuardrailOutcome.WAITING

    def view(self) -> VerdictOfGuardrail:
        finite = {k: v if math.isfinite(v) else None for k, v in self.numbers.items()}
        return VerdictOfGuardrail(self.guardrail, self.outcome, self.words, finite, self.required)


@dataclass(frozen=True, slots=True)
class Harm:
    """A business metric: the always-valid interval of how much worse the candidate does. `unfit`:
    why it says nothing of a rollout, "" where it does."""

    metric: str
    lower: float
    upper: float
    unfit: str = ""


@dataclass(frozen=True, slots=True)
class Candidate:
    """The candidate as servers see it. `missing`: live servers on which it is not ready, and
    `failed`: why it cannot be, "" otherwise. `crashes` only grows. `memory_ratio`: resident over
    declared memory, None where nothing is declared. `in_flight`: accepted and not answered yet."""

    missing: tuple[str, ...] = ()
    failed: str = ""
    crashes: int = 0
    memory_ratio: float | None = None
    in_flight: int = 0


@dataclass(frozen=True, slots=True)
class RolloutObservations:
    """Everything a decision looks at, counted since the rollout began.

    `arms` is None when the counts cannot be read, for the reason in `problem`. `mismatch`: in
    words, that arms did not get the units they were meant to get. `labels`: None where the plan
    does not ask for them.
    """

    arms: RolloutTotals | None
    candidate: Candidate = Candidate()
    problem: str = ""
    mismatch: str = ""
    harms: tuple[Harm, ...] = ()
    labels: LabelComparison | None = None


def judge(state: RolloutState, seen: RolloutObservations) -> tuple[GuardrailVerdict, ...]:
    """One verdict of each guardrail; those that need counts are missing when there are none."""
    rails = state.plan.guardrails
    always = (_crashes(state, seen.candidate), _memory(rails, seen.candidate))
    if seen.arms is None:
        return always
    here = current(state, seen.arms)
    strata = (*state.windows.strata, here)
    return (
        *always,
        _breaker(state, seen.arms),
        _errors(state, strata, _beside_before(state, here)),
        _outputs("not_a_number", "answers with NaN or infinity", strata),
        _outputs("empty", "empty answers", strata),
        *(_latency(state, seen.arms, guard) for guard in LATENCIES),
        *(_harm(harm) for harm in seen.harms),
        *_labels(state, seen.labels),
    )


def current(state: RolloutState, arms: RolloutTotals) -> Stratum:
    """What both arms answered since the phase began."""
    base = state.windows.base
    candidate = tried(arms, state.place).counts.since(tried(base, state.place).counts)
    return Stratum(candidate, arms.control.counts.since(base.control.counts))


def _crashes(state: RolloutState, candidate: Candidate) -> GuardrailVerdict:
    crashes = candidate.crashes - state.crashes
    numbers = {"crashes": float(crashes)}
    if candidate.failed:
        return GuardrailVerdict(
            "crash", GuardrailOutcome.FAIL, f"it failed: {candidate.failed}", numbers
        )
    if crashes > 0:
        times = "once" if crashes == 1 else f"{crashes} times"
        return GuardrailVerdict(
            "crash", GuardrailOutcome.FAIL, f"its worker crashed {times}", numbers
        )
    return GuardrailVerdict("crash", GuardrailOutcome.OK, "no crash", numbers)


def _memory(rails: Guardrails, candidate: Candidate) -> GuardrailVerdict:
    ratio = candidate.memory_ratio
    if ratio is None:
        return GuardrailVerdict(
            "memory", GuardrailOutcome.WAITING, "no memory is declared or measured", {}
        )
    words = f"memory is {ratio:.2f} × what is declared (limit {rails.memory_ratio:.2f})"
    outcome = GuardrailOutcome.FAIL if ratio > rails.memory_ratio else GuardrailOutcome.OK
    if math.isnan(ratio):
        outcome = GuardrailOutcome.INCONCLUSIVE
    return GuardrailVerdict("memory", outcome, words, {"ratio": ratio, "limit": rails.memory_ratio})


def _breaker(state: RolloutState, arms: RolloutTotals) -> GuardrailVerdict:
    rails = state.plan.guardrails
    recent = tried(arms, state.place).counts.since(state.windows.recent)
    numbers = {"errors": float(recent.errors), "requests": float(recent.requests)}
    words = f"{recent.errors} of its last {recent.requests} requests failed"
    if recent.requests < rails.breaker_requests:
        return GuardrailVerdict("breaker", GuardrailOutcome.WAITING, words, numbers)
    tripped = recent.errors >= rails.breaker_share * recent.requests
    return GuardrailVerdict(
        "breaker", GuardrailOutcome.FAIL if tripped else GuardrailOutcome.OK, words, numbers
    )


def _beside_before(state: RolloutState, here: Stratum) -> Stratum:
    """The phase by itself. While the candidate has all traffic nobody answers beside it: then it is
    held against what the stable version answered in the steps before, minutes ago."""
    if state.place is not Phase.PROMOTING:
        return here
    before = (one.control for one in state.windows.strata)
    return Stratum(here.candidate, sum(before, here.control))


def _errors(state: RolloutState, strata: Sequence[Stratum], here: Stratum) -> GuardrailVerdict:
    """Required while both arms answer: once the candidate has all traffic, no request will come
    that could decide what its steps have left open."""
    rails = state.plan.guardrails
    found = compared(strata, "errors")
    if found is None:
        return GuardrailVerdict(
            "errors", GuardrailOutcome.WAITING, "not both arms have answered yet", {}
        )
    surely = _difference(found, FAIL_ALPHA)
    margin = rails.error_margin
    lower = max(surely.lower, _lower(compared((here,), "errors"), STEP_ALPHA, margin))
    likely = _lower(found, PAUSE_ALPHA, margin / 2)
    bound = lower if lower > margin else max(lower, likely)
    worse = f"worse by at least {100 * bound:.2f} points"
    words = (
        f"{_percent(found.candidate)} of its requests failed, {_percent(found.control)} of the "
        f"stable version's: {worse if bound > 0 else 'not significantly worse'} "
        f"(limit {100 * margin:.2f}, half of it to pause)"
    )
    numbers = {**_rates(found), "lower": bound, "upper": surely.upper, "limit": margin}
    outcome = _of_bounds(lower, likely, margin)
    must = state.place is not Phase.PROMOTING
    if must and outcome is GuardrailOutcome.OK and found.candidate - found.control > margin:
        outcome = GuardrailOutcome.WAITING
    return GuardrailVerdict("errors", outcome, words, numbers, required=must)


def _percent(share: float) -> str:
    return f"{100 * share:.2f} %"


def _of_bounds(surely: float, likely: float, margin: float) -> GuardrailOutcome:
    if surely > margin:
        return GuardrailOutcome.FAIL
    return GuardrailOutcome.PAUSE if likely > margin / 2 else GuardrailOutcome.OK


def _outputs(metric: str, what: str, strata: Sequence[Stratum]) -> GuardrailVerdict:
    found = compared(strata, metric)
    if found is None:
        return GuardrailVerdict(
            metric, GuardrailOutcome.WAITING, "not both arms have answered yet", {}
        )
    lower = _lower(found, OUTPUT_ALPHA, 0.0)
    words = (
        f"{what}: {_percent(found.candidate)} of its requests, {_percent(found.control)} of the "
        "stable version's"
    )
    outcome = GuardrailOutcome.FAIL if lower > 0 else GuardrailOutcome.OK
    return GuardrailVerdict(metric, outcome, words, {**_rates(found), "lower": lower})


def _lower(found: RateComparison | None, alpha: float, above: float) -> float:
    """The interval's lower bound; -1.0, unasked, where even its middle is not above `above`."""
    if found is None or found.candidate - found.control <= above:
        return -1.0
    return _difference(found, alpha).lower


def _difference(found: RateComparison, alpha: float) -> Interval:
    return difference_of_rates(
        found.bad_candidate, found.n_candidate, found.bad_control, found.n_control, alpha
    )


def _rates(found: RateComparison) -> dict[str, float]:
    return {"candidate": found.candidate, "control": found.control}


def _latency(state: RolloutState, arms: RolloutTotals, guard: LatencyGuard) -> GuardrailVerdict:
    rails, must = state.plan.guardrails, required(state, arms, guard)
    window = state.windows.latencies.get(guard.name)
    windows, least = window.ratios.n if window else 0, max(rails.latency_windows, FEWEST_WINDOWS)
    if window is None or windows < least:
        words = f"{windows} of at least {least} windows with {guard.sample} answers of each arm"
        numbers = {"windows": float(windows)}
        return GuardrailVerdict(guard.name, GuardrailOutcome.WAITING, words, numbers, must)
    found = estimate(window.ratios)
    lower, upper = found.interval.lower, found.interval.upper
    words = (
        f"{guard.subject} is {found.ratio:.2f} × the stable version's, between {lower:.2f} and "
        f"{upper:.2f} (limit {rails.latency_ratio:.2f})"
    )
    numbers = {
        "ratio": found.ratio,
        "lower": lower,
        "upper": upper,
        "limit": rails.latency_ratio,
        "windows": float(windows),
    }
    must = must or (beside(state) and found.ratio > rails.latency_ratio)
    return GuardrailVerdict(guard.name, _of_ratio(found, rails), words, numbers, must)


def _of_ratio(found: RatioEstimate, rails: Guardrails) -> GuardrailOutcome:
    """A candidate goes on where it is surely within the limit, not where nothing speaks against
    it: on a busy machine nothing ever does."""
    if found.interval.lower > rails.latency_ratio:
        return GuardrailOutcome.FAIL
    if found.interval.lower > rails.latency_pause_ratio:
        return GuardrailOutcome.PAUSE
    within = found.interval.upper < rails.latency_ratio
    return GuardrailOutcome.OK if within else GuardrailOutcome.WAITING


def _labels(state: RolloutState, labels: LabelComparison | None) -> tuple[GuardrailVerdict, ...]:
    """Required while both versions answer: a candidate goes on where its labels are surely no
    further from the stable version's than the limit, or near enough that chance explains it."""
    rails = state.plan.guardrails
    if labels is None or not rails.label_psi:
        return ()
    must, name = state.place is Phase.STEP, "label_drift"
    found = labels.found
    if found is None:
        return (GuardrailVerdict(name, GuardrailOutcome.WAITING, labels.missing, {}, must),)
    numbers = {
        "psi": found.psi,
        "lower": found.psi_lower,
        "limit": rails.label_psi,
        "candidate": float(found.n_current),
        "control": float(found.n_reference),
    }
    least = min(found.n_current, found.n_reference)
    if least < rails.label_sample:
        words = f"{least} of at least {rails.label_sample} labels of each version"
        return (GuardrailVerdict(name, GuardrailOutcome.WAITING, words, numbers, must),)
    words = (
        f"PSI of its labels against the stable version's is {found.psi:.2f}, surely above "
        f"{found.psi_lower:.2f} (limit {rails.label_psi:g})"
    )
    outcome = GuardrailOutcome.OK
    if found.psi_lower > rails.label_psi:
        outcome = GuardrailOutcome.FAIL
    elif found.psi > rails.label_psi:
        outcome = GuardrailOutcome.WAITING
    return (GuardrailVerdict(name, outcome, words, numbers, must),)


def _harm(harm: Harm) -> GuardrailVerdict:
    numbers = {"lower": harm.lower, "upper": harm.upper}
    if harm.unfit:
        return GuardrailVerdict(harm.metric, GuardrailOutcome.WAITING, harm.unfit, numbers)
    if math.isnan(harm.lower) or math.isnan(harm.upper):
        return GuardrailVerdict(
            harm.metric, GuardrailOutcome.INCONCLUSIVE, f"{harm.metric} is no number", numbers
        )
    if harm.lower > 0:
        words = f"{harm.metric} is worse by at least {harm.lower:.3g}"
        return GuardrailVerdict(harm.metric, GuardrailOutcome.FAIL, words, numbers)
    return GuardrailVerdict(
        harm.metric, GuardrailOutcome.OK, f"{harm.metric} is not significantly worse", numbers
    )

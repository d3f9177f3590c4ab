"""Whole rollouts in a virtual time through the real policy, with drawn requests: seeded, no clock.

Latencies are drawn straight into a histogram's buckets, so that a second of traffic is two draws.
"""

import math
from dataclasses import dataclass, field, replace

import numpy as np
from scipy.stats import norm

from control.rollouts.arms import ArmTotals, OutcomeCounts, RolloutTotals
from control.rollouts.guardrails import RolloutObservations
from control.rollouts.plan import BUCKETS, RolloutPlan
from control.rollouts.policy import decide
from control.rollouts.state import Phase, RolloutState, Transition
from control.statistics.histogram import EDGES, Histogram

MEDIAN_S = 0.020


@dataclass(frozen=True, slots=True)
class Behaviour:
    """`spread`: sigma of the log-normal latency."""

    error_rate: float = 0.01
    slower: float = 1.0
    spread: float = 0.5

    def buckets(self) -> np.ndarray:
        """How likely a latency is to fall into each bucket of a histogram."""
        scale = math.log(MEDIAN_S * self.slower)
        cdf = norm.cdf((np.log(EDGES) - scale) / self.spread)
        chances = np.diff(np.concatenate([[0.0], cdf, [1.0]]))
        return chances / chances.sum()


@dataclass(slots=True)
class Traffic:
    """`rate_per_s` of all arms together; every tick lasts `tick_s`."""

    stable: Behaviour
    candidate: Behaviour
    rate_per_s: float
    tick_s: float = 30.0
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(1))
    _buckets: tuple[np.ndarray, np.ndarray] = field(init=False)

    def __post_init__(self) -> None:
        self._buckets = (self.stable.buckets(), self.candidate.buckets())

    def after(self, arms: RolloutTotals, weight: int, mirror: int) -> RolloutTotals:
        """The counts one tick later."""
        total = int(self.random.poisson(self.rate_per_s * self.tick_s))
        tried = int(self.random.binomial(total, weight / BUCKETS))
        copied = int(self.random.binomial(total, mirror / BUCKETS))
        return RolloutTotals(
            self._more(arms.control, self.stable, total - tried, 0),
            self._more(arms.candidate, self.candidate, tried, 1),
            self._more(arms.mirrored, self.candidate, copied, 1),
        )

    def _more(self, arm: ArmTotals, behaviour: Behaviour, requests: int, which: int) -> ArmTotals:
        if not requests:
            return arm
        errors = int(self.random.binomial(requests, behaviour.error_rate))
        latency = Histogram()
        latency.counts = self.random.multinomial(requests - errors, self._buckets[which]).tolist()
        latency.n = requests - errors
        return arm + ArmTotals(OutcomeCounts(requests, errors), latency)


@dataclass(frozen=True, slots=True)
class Story:
    """How a rollout went: each move with its moment and words, and where it ended."""

    state: RolloutState
    moves: tuple[tuple[float, Transition, str], ...]
    sampled_at: float | None
    """When the first step had its minimum sample."""

    @property
    def promoted(self) -> bool:
        return any(move is Transition.PROMOTE for _, move, _ in self.moves)

    def first(self, wanted: Transition) -> float | None:
        return next((at for at, move, _ in self.moves if move is wanted), None)


def run(plan: RolloutPlan, traffic: Traffic, longest_s: float = 86_400.0) -> Story:
    """Until it has ended, or has been paused for an hour, or `longest_s`."""
    state, arms, now, moves, sampled_at = RolloutState(plan), RolloutTotals(), 0.0, [], None
    while now < longest_s:
        decision = decide(state, RolloutObservations(arms), now)
        state = decision.state
        if decision.transition is not None:
            moves.append((now, decision.transition, decision.words))
            if state.ended:
                break
            continue
        if state.phase is Phase.PAUSED and now - state.paused_at > 3600:
            break
        arms = traffic.after(arms, state.weight, state.mirror)
        now += traffic.tick_s
        if sampled_at is None and state.place is Phase.STEP and _sampled(state, arms):
            sampled_at = now
    return Story(state, tuple(moves), sampled_at)


def _sampled(state: RolloutState, arms: RolloutTotals) -> bool:
    seen = arms.since(state.windows.base)
    return min(seen.control.counts.requests, seen.candidate.counts.requests) >= state.min_sample


def stories(
    number: int, plan: RolloutPlan, traffic: Traffic, longest_s: float = 86_400.0
) -> list[Story]:
    """Each with draws of its own."""
    return [run(plan, replace_random(traffic, seed), longest_s) for seed in range(1, number + 1)]


def replace_random(traffic: Traffic, seed: int) -> Traffic:
    return replace(traffic, random=np.random.default_rng(seed))

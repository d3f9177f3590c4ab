"""Whole rollouts in a virtual time through the real policy: seeded, no clock. Pure."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum

import numpy as np

from benchmarks.rollout_policy.machine import LoadLevel, SharedMachine, VersionBehaviour
from control.rollouts.arms import RolloutTotals
from control.rollouts.guardrails import RolloutObservations
from control.rollouts.plan import RolloutPlan
from control.rollouts.policy import decide
from control.rollouts.state import PauseReason, Phase, RolloutState, Transition

AWAY_S = 120.0
"""Nobody is there to resume: a rollout that is paused for so long stays so."""


class SimulatedEnd(StrEnum):
    PROMOTED = "promoted"
    ROLLED_BACK = "rolled back"
    PAUSED = "paused"


@dataclass(frozen=True, slots=True)
class RolloutScenario:
    """What the candidate is like beside the stable version."""

    name: str
    stable: VersionBehaviour = field(default_factory=VersionBehaviour)
    candidate: VersionBehaviour = field(default_factory=VersionBehaviour)


SCENARIOS = (
    RolloutScenario("equal"),
    RolloutScenario("1.25 × slower", candidate=VersionBehaviour(slower=1.25)),
    RolloutScenario("1.5 × slower", candidate=VersionBehaviour(slower=1.5)),
    RolloutScenario("2 × slower", candidate=VersionBehaviour(slower=2.0)),
    RolloutScenario("errors + 1 point", candidate=VersionBehaviour(error_rate=0.015)),
)


@dataclass(frozen=True, slots=True)
class SimulatedTraffic:
    """A plan, the requests a second for both versions, and the seconds between two looks."""

    plan: RolloutPlan
    rate_per_s: float
    tick_s: int


@dataclass(frozen=True, slots=True)
class SimulatedRollout:
    end: SimulatedEnd
    reason: str
    took_s: float
    pause: PauseReason | None = None


def simulate(
    traffic: SimulatedTraffic, level: LoadLevel, scenario: RolloutScenario, seed: int
) -> SimulatedRollout:
    """One run: until all traffic is the candidate's or the stable version's, or it stays paused."""
    random = np.random.default_rng(seed)
    machine = SharedMachine(level, scenario.stable, scenario.candidate, traffic.rate_per_s, random)
    state, arms, now = RolloutState(traffic.plan), RolloutTotals(), 0.0
    while True:
        decision = decide(state, RolloutObservations(arms), now)
        state = decision.state
        if decision.transition is Transition.PROMOTE:
            return SimulatedRollout(SimulatedEnd.PROMOTED, decision.words, now)
        if decision.transition is Transition.ABORT:
            return SimulatedRollout(SimulatedEnd.ROLLED_BACK, decision.words, now)
        if state.phase is Phase.PAUSED and now - state.paused_at >= AWAY_S:
            return SimulatedRollout(SimulatedEnd.PAUSED, state.reason, now, state.pause)
        if decision.transition is None:
            arms = machine.after(arms, state.weight, state.mirror, traffic.tick_s)
            now += traffic.tick_s


def runs(
    traffic: SimulatedTraffic, level: LoadLevel, scenario: RolloutScenario, seeds: range
) -> Iterator[SimulatedRollout]:
    """One for each seed."""
    return (simulate(traffic, level, scenario, seed) for seed in seeds)

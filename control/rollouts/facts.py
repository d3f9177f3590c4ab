"""What is known of a candidate right now, gathered from the rows of all servers."""

from dataclasses import dataclass
from datetime import datetime

from sqlalchemy.orm import Session

from control import loads, servers
from control.drift.labels import LabelComparison
from control.rollout_tables import Rollout
from control.rollouts import counts
from control.rollouts.guardrails import Candidate, Harm, RolloutObservations
from control.views import LoadView

READY, FAILED = "READY", "FAILED"
"""States of a version as gateways tell them."""


@dataclass(frozen=True, slots=True)
class Signals:
    """What experiments say of a rollout: business metrics with the interval of how much worse the
    candidate does; `labels`: those that both versions gave, None where they are not asked for."""

    harms: tuple[Harm, ...] = ()
    labels: LabelComparison | None = None


NO_SIGNALS = Signals()


def seen(
    session: Session, row: Rollout, now: datetime, signals: Signals = NO_SIGNALS
) -> RolloutObservations:
    """Everything a decision about the rollout looks at."""
    alive = servers.alive(session, now)
    reading = counts.read(session, row.id, alive, now)
    states = {
        state.server: state
        for state in loads.states(session, [row.model])
        if state.version == row.candidate and state.server in alive
    }
    candidate = Candidate(
        missing=_missing(alive, states),
        failed=_failed(states),
        crashes=reading.crashes,
        memory_ratio=reading.memory_ratio,
        in_flight=reading.in_flight,
    )
    arms = None if reading.problem else reading.arms
    return RolloutObservations(
        arms, candidate, reading.problem, reading.mismatch, signals.harms, signals.labels
    )


def _missing(alive: frozenset[str], states: dict[str, LoadView]) -> tuple[str, ...]:
    if not alive:
        return ("any server: none is alive",)
    ready = {server for server, state in states.items() if state.state == READY}
    return tuple(sorted(alive - ready))


def _failed(states: dict[str, LoadView]) -> str:
    failed = [state for state in states.values() if state.state == FAILED]
    return "; ".join(f"{state.server}: {state.reason}" for state in failed)

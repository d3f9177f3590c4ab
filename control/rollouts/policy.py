"""What a rollout does next: a plain function of where it stands, what was seen, and the time. Pure.

Guardrails come first, then pauses, then the way forward; without traffic nothing moves forward, nor
before every required guardrail has decided for it.
"""

from dataclasses import replace

from control.rollouts import moves
from control.rollouts.arms import RolloutTotals
from control.rollouts.guardrails import (
    GuardrailOutcome,
    GuardrailVerdict,
    RolloutObservations,
    current,
    judge,
)
from control.rollouts.moves import RolloutDecision
from control.rollouts.plan import Mode
from control.rollouts.state import PauseReason, Phase, RolloutState
from control.rollouts.windows import LATENCIES, closed, refreshed

MOST_UNREAD, UNREAD_EVERY_S = 4, 10.0
"""So many readings of the counts may fail in a row, counted this far apart."""

_AUTOMATIC = (PauseReason.NO_DATA, PauseReason.METRIC_ERROR, PauseReason.INCONCLUSIVE)
_WATCHED = (Phase.MIRROR, Phase.STEP, Phase.PROMOTING)


def decide(rollout: RolloutState, seen: RolloutObservations, now: float) -> RolloutDecision:
    """One move at most; call it again for the next. `now` in seconds since the epoch.

    A state that has ended stays. Whatever `seen` leaves out only ever holds a rollout back, and
    what it says of a crash, a failed load or memory takes the candidate back even from a pause.
    """
    if rollout.ended:
        return RolloutDecision(rollout, None, rollout.reason)
    if rollout.phase is Phase.PENDING:
        return moves.prewarm(rollout, seen.candidate, now)
    if rollout.phase is Phase.ABORTING:
        return _aborting(rollout, seen, now)
    if rollout.place is Phase.PREWARM:
        return _prewarm(rollout, seen, now)
    return _watched(rollout, seen, now)


def _aborting(state: RolloutState, seen: RolloutObservations, now: float) -> RolloutDecision:
    if seen.candidate.in_flight > 0 and now < state.deadline:
        words = f"draining {seen.candidate.in_flight} requests in flight"
        return RolloutDecision(state, None, words)
    return moves.degrade(state, now)


def _prewarm(state: RolloutState, seen: RolloutObservations, now: float) -> RolloutDecision:
    """No guardrail but crashes: nothing has been asked of it yet."""
    verdicts = judge(state, replace(seen, arms=None))
    if failed := _first(verdicts, GuardrailOutcome.FAIL):
        return replace(moves.abort(state, failed.words, now), verdicts=verdicts)
    if state.phase is Phase.PAUSED:
        return RolloutDecision(state, None, state.reason, verdicts)
    if waits := _not_ready(state, seen):
        if now >= state.deadline:
            return moves.abort(state, f"after {state.plan.prewarm_s:g} s {waits}", now)
        return RolloutDecision(state, None, waits, verdicts)
    if state.plan.mode is Mode.MANUAL and not state.shortcut:
        words = "it is ready and waits to be promoted"
        return moves.pause(state, PauseReason.MANUAL, words, now, done=True)
    return moves.forward(state, seen.arms or state.windows.base, now)


def _not_ready(state: RolloutState, seen: RolloutObservations) -> str:
    if seen.candidate.missing:
        return f"it is not ready on {', '.join(seen.candidate.missing)}"
    if seen.arms is None and not moves.goes_straight(state):
        return f"the counts cannot be read: {seen.problem}"
    return ""


def _watched(state: RolloutState, seen: RolloutObservations, now: float) -> RolloutDecision:
    if seen.arms is None and not state.min_sample:
        seen = replace(seen, arms=state.windows.base)  # nothing is counted in this phase
    if seen.arms is None:
        state = _unread(state, now)
    else:
        state = replace(state, windows=closed(state, seen.arms, now), unread=0)
    verdicts = judge(state, seen)
    decision = _decided(state, seen, verdicts, now)
    if decision.transition is None and seen.arms is not None:
        state = _fed(decision.state, seen.arms, now)
        state = replace(state, windows=refreshed(state, seen.arms, now))
        decision = replace(decision, state=state)
    return replace(decision, verdicts=verdicts)


def _unread(state: RolloutState, now: float) -> RolloutState:
    if state.unread and now - state.unread_at < UNREAD_EVERY_S:
        return state
    return replace(state, unread=state.unread + 1, unread_at=now)


def _decided(
    state: RolloutState,
    seen: RolloutObservations,
    verdicts: tuple[GuardrailVerdict, ...],
    now: float,
) -> RolloutDecision:
    if failed := _first(verdicts, GuardrailOutcome.FAIL):
        return moves.abort(state, failed.words, now)
    if state.phase is Phase.PAUSED:
        return _paused(state, seen, verdicts, now)
    if pause := _reason_to_pause(state, seen, verdicts, now):
        return moves.pause(state, pause[0], pause[1], now)
    if seen.arms is None:
        return RolloutDecision(state, None, f"the counts cannot be read: {seen.problem}")
    if waits := _waits_for(state, seen, seen.arms, now):
        return RolloutDecision(state, None, waits)
    return _over(state, seen.arms, verdicts, now)


def _reason_to_pause(
    state: RolloutState,
    seen: RolloutObservations,
    verdicts: tuple[GuardrailVerdict, ...],
    now: float,
) -> tuple[PauseReason, str] | None:
    if state.unread >= MOST_UNREAD:
        words = f"the counts could not be read {state.unread} times in a row: {seen.problem}"
        return PauseReason.METRIC_ERROR, words
    if seen.mismatch and PauseReason.SRM not in state.accepted:
        return PauseReason.SRM, seen.mismatch
    signal = _first(verdicts, GuardrailOutcome.PAUSE)
    if signal and PauseReason.SIGNAL not in state.accepted:
        return PauseReason.SIGNAL, signal.words
    if seen.arms is None:
        return None
    answered = _answered(state, seen.arms)
    lacks = answered < state.min_sample or _holding(verdicts) is not None
    if lacks and answered <= state.data_requests and now >= state.data_until:
        words = f"no request of both arms in {state.plan.no_data_s:g} s, {answered} before"
        return PauseReason.NO_DATA, words
    return None


def _paused(
    state: RolloutState,
    seen: RolloutObservations,
    verdicts: tuple[GuardrailVerdict, ...],
    now: float,
) -> RolloutDecision:
    """What paused by itself goes on by itself once the reason is gone; a person's pause, a
    sample-ratio mismatch and what waits for a person stay."""
    words = _recovered(state, seen, verdicts)
    if words:
        return moves.resume(state, words, now)
    return RolloutDecision(state, None, state.reason)


def _recovered(
    state: RolloutState, seen: RolloutObservations, verdicts: tuple[GuardrailVerdict, ...]
) -> str:
    if seen.arms is None or state.done:
        return ""
    if state.pause is PauseReason.METRIC_ERROR:
        return "the counts can be read again"
    if state.pause is PauseReason.NO_DATA and _answered(state, seen.arms) > state.data_requests:
        return "there are requests again"
    if state.pause is PauseReason.INCONCLUSIVE and _decided_well(verdicts):
        return "every required guardrail has decided"
    if state.pause is PauseReason.SIGNAL and _clear(verdicts):
        return "it is no longer worse than the stable version"
    return ""


def _decided_well(verdicts: tuple[GuardrailVerdict, ...]) -> bool:
    """Every guardrail that could not decide has, and none would pause the rollout again."""
    again = (GuardrailOutcome.INCONCLUSIVE, GuardrailOutcome.PAUSE)
    return not any(verdict.holds or verdict.outcome in again for verdict in verdicts)


def _clear(verdicts: tuple[GuardrailVerdict, ...]) -> bool:
    """No sign of harm at all: half the margin would let a pause flutter."""
    signs = {"errors": 0.0, **{one.name: 1.0 for one in LATENCIES}}
    return all(
        verdict.numbers.get("lower", 0.0) <= signs[verdict.guardrail]
        and verdict.outcome is not GuardrailOutcome.PAUSE
        for verdict in verdicts
        if verdict.guardrail in signs
    )


def _waits_for(
    state: RolloutState, seen: RolloutObservations, arms: RolloutTotals, now: float
) -> str:
    """What the phase still needs before it may end, in words; "" when it is over."""
    waits = []
    if now < state.deadline:
        waits.append(f"{state.deadline - now:.0f} s")
    if (lacking := state.min_sample - _answered(state, arms)) > 0:
        waits.append(f"{lacking:,} more requests of each arm")
    if seen.candidate.missing:
        waits.append(f"the candidate to be ready on {', '.join(seen.candidate.missing)}")
    return f"waits for {' and '.join(waits)}" if waits else ""


def _over(
    state: RolloutState, arms: RolloutTotals, verdicts: tuple[GuardrailVerdict, ...], now: float
) -> RolloutDecision:
    unknown = _first(verdicts, GuardrailOutcome.INCONCLUSIVE)
    if PauseReason.INCONCLUSIVE not in state.accepted:
        if unknown:
            return moves.pause(state, PauseReason.INCONCLUSIVE, unknown.words, now)
        if holding := _holding(verdicts):
            return _undecided(state, holding, now)
    if state.plan.mode is Mode.MANUAL and state.phase is not Phase.PROMOTING:
        words = "this step is done and waits to be promoted"
        return moves.pause(state, PauseReason.MANUAL, words, now, done=True)
    return moves.forward(state, arms, now)


def _undecided(state: RolloutState, holding: GuardrailVerdict, now: float) -> RolloutDecision:
    """The sample is there and the hold is over; only this guardrail says neither yes nor no."""
    since = state.undecided_at or now
    until = since + max(state.plan.undecided_s, since - state.since)
    words = f"{holding.guardrail} has not decided: {holding.words}"
    if now >= until:
        return moves.pause(state, PauseReason.INCONCLUSIVE, words, now)
    waits = f"waits up to {until - now:.0f} s more, for {words}"
    return RolloutDecision(replace(state, undecided_at=since), None, waits)


def _fed(state: RolloutState, arms: RolloutTotals, now: float) -> RolloutState:
    """Traffic keeps the deadline for the lack of it away; noted in halves of it, to write less."""
    grace_s = state.plan.no_data_s
    answered = _answered(state, arms)
    if state.phase is Phase.PAUSED or answered <= state.data_requests:
        return state
    if state.data_until - now > grace_s / 2:
        return state
    return replace(state, data_requests=answered, data_until=now + grace_s)


def _answered(state: RolloutState, arms: RolloutTotals) -> int:
    """Requests of the arm that has fewer, since the phase began; at last of the candidate alone,
    which then has them all."""
    both = current(state, arms)
    if state.place is Phase.PROMOTING:
        return both.candidate.requests
    return min(both.candidate.requests, both.control.requests)


def _holding(verdicts: tuple[GuardrailVerdict, ...]) -> GuardrailVerdict | None:
    """The first required guardrail that has not decided."""
    return next((verdict for verdict in verdicts if verdict.holds), None)


def _first(
    verdicts: tuple[GuardrailVerdict, ...], outcome: GuardrailOutcome
) -> GuardrailVerdict | None:
    return next((verdict for verdict in verdicts if verdict.outcome is outcome), None)

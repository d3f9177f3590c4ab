"""What a person may tell a rollout, and what becomes of it. Pure."""

from dataclasses import replace
from enum import StrEnum

from control.errors import Conflict
from control.rollouts import moves
from control.rollouts.arms import RolloutTotals
from control.rollouts.moves import RolloutDecision
from control.rollouts.state import PauseReason, Phase, RolloutState


class RolloutCommand(StrEnum):
    PROMOTE = "promote"  # to the next step, without waiting for the end of this one
    PROMOTE_FULL = "promote_full"  # all traffic now, without any further step or hold
    PAUSE = "pause"
    RESUME = "resume"
    ABORT = "abort"
    RETRY = "retry"  # what was taken back begins again


_OVERRULED = (PauseReason.SIGNAL, PauseReason.INCONCLUSIVE, PauseReason.SRM)


def obey(
    rollout: RolloutState, command: RolloutCommand, arms: RolloutTotals, by: str, now: float
) -> RolloutDecision:
    """`by` is who wants it. Whoever lets a paused rollout go on overrules what paused it, for the
    rest of this rollout; what takes a candidate back still does. Raises Conflict saying what would
    be possible instead."""
    if command is RolloutCommand.RETRY:
        return _retry(rollout, by, now)
    if rollout.ended or rollout.phase is Phase.ABORTING:
        others = "only retry is possible" if rollout.phase is Phase.DEGRADED else "it has ended"
        raise Conflict(f"the rollout is {rollout.phase}: {others}")
    if command is RolloutCommand.ABORT:
        return moves.abort(rollout, f"requested by {by}", now)
    if command is RolloutCommand.PAUSE:
        return _pause(rollout, by, now)
    if command is RolloutCommand.RESUME:
        return _resume(rollout, by, now)
    return _promote(rollout, command, arms, by, now)


def _retry(state: RolloutState, by: str, now: float) -> RolloutDecision:
    if state.phase is not Phase.DEGRADED:
        raise Conflict(
            f"the rollout is {state.phase}; only one that was rolled back can be retried"
        )
    return _said(moves.retry(state, now), by)


def _pause(state: RolloutState, by: str, now: float) -> RolloutDecision:
    if state.pause is PauseReason.MANUAL:
        raise Conflict("the rollout is paused already; resume, promote or abort it")
    if state.phase is Phase.PENDING:
        raise Conflict("the rollout is about to start; pause it in a moment, or abort it")
    return moves.pause(state, PauseReason.MANUAL, f"requested by {by}", now)


def _resume(state: RolloutState, by: str, now: float) -> RolloutDecision:
    if state.phase is not Phase.PAUSED:
        raise Conflict(f"the rollout is not paused but in phase {state.phase}")
    if state.done:
        raise Conflict("the rollout has done what its plan says for now; promote or abort it")
    return moves.resume(_overruled(state), f"resumed by {by}", now)


def _promote(
    state: RolloutState, command: RolloutCommand, arms: RolloutTotals, by: str, now: float
) -> RolloutDecision:
    if state.place in (Phase.PENDING, Phase.PREWARM) and not state.done:
        raise Conflict("the candidate is not ready on every server yet; wait for it, or abort")
    state = _overruled(state)
    if command is RolloutCommand.PROMOTE_FULL and state.place is not Phase.PROMOTING:
        return _said(moves.promoting(state, arms, now, watched=False), by)
    return _said(moves.forward(state, arms, now), by)


def _overruled(state: RolloutState) -> RolloutState:
    if state.pause not in _OVERRULED or state.pause in state.accepted:
        return state
    return replace(state, accepted=(*state.accepted, state.pause))


def _said(decision: RolloutDecision, by: str) -> RolloutDecision:
    words = f"{decision.words} ({by})"
    return replace(decision, words=words, state=replace(decision.state, reason=words))

"""The moves a rollout can make: each gives the next state, its weights and its deadlines. Pure.

`control.rollouts.policy` decides which one is made, `control.rollouts.commands` for a person.
"""

from dataclasses import dataclass, replace

from control.rollouts.arms import RolloutTotals
from control.rollouts.guardrails import Candidate, GuardrailVerdict, current
from control.rollouts.plan import BUCKETS, Mode, percent
from control.rollouts.state import PauseReason, Phase, RolloutState, Transition
from control.rollouts.windows import opened

SETTLE_S = 30.0
"""How long what an aborted candidate has accepted may take; the weight is gone before."""


@dataclass(frozen=True, slots=True)
class RolloutDecision:
    """What to do: nothing but to keep `state` where `transition` is None. `words` say what the
    rollout does or waits for."""

    state: RolloutState
    transition: Transition | None
    words: str
    verdicts: tuple[GuardrailVerdict, ...] = ()


def prewarm(state: RolloutState, candidate: Candidate, now: float) -> RolloutDecision:
    """The candidate is loaded and has no traffic. Crashes of earlier tries do not count."""
    return _moved(
        replace(
            state,
            phase=Phase.PREWARM,
            since=now,
            deadline=now + state.plan.prewarm_s,
            crashes=candidate.crashes,
        ),
        Transition.PREWARM,
        "prewarming the candidate",
    )


def forward(state: RolloutState, arms: RolloutTotals, now: float) -> RolloutDecision:
    """To what follows the phase, or the one that a pause interrupts."""
    plan, place = state.plan, state.place
    if place is Phase.PROMOTING:
        return healthy(state, now)
    if goes_straight(state):
        return promoting(state, arms, now, watched=False)
    if place is Phase.PREWARM and plan.mirror:
        return _mirror(state, arms, now)
    if state.step + 1 < len(plan.steps):
        return _step(state, arms, now)
    return promoting(state, arms, now, watched=True)


def goes_straight(state: RolloutState) -> bool:
    """Without steps: nothing is compared, so nothing is counted."""
    return bool(state.shortcut) or state.plan.mode is Mode.IMMEDIATE


def _mirror(state: RolloutState, arms: RolloutTotals, now: float) -> RolloutDecision:
    mirror = state.plan.mirror
    assert mirror is not None
    begun = _begun(state, Phase.MIRROR, arms, now, mirror.hold_s, mirror.min_sample)
    words = f"mirroring {_share(mirror.weight)} of the requests"
    return _moved(replace(begun, mirror=mirror.weight), Transition.MIRROR, words)


def _step(state: RolloutState, arms: RolloutTotals, now: float) -> RolloutDecision:
    number = state.step + 1
    step = state.plan.steps[number]
    begun = _begun(state, Phase.STEP, arms, now, step.hold_s, step.min_sample)
    words = f"step {number + 1} of {len(state.plan.steps)}: {_share(step.weight)} of the traffic"
    return _moved(replace(begun, step=number, weight=step.weight), Transition.STEP, words)


def promoting(
    state: RolloutState, arms: RolloutTotals, now: float, *, watched: bool
) -> RolloutDecision:
    """All traffic; `watched` for the plan's last hold, otherwise healthy at the next look."""
    last = state.plan.last
    hold_s, sample = (last.hold_s, last.min_sample) if watched else (0.0, 0)
    begun = _begun(state, Phase.PROMOTING, arms, now, hold_s, sample)
    words = "all traffic to the candidate" + (
        "" if watched else f" at once: {_why_straight(state)}"
    )
    return _moved(replace(begun, weight=BUCKETS), Transition.PROMOTE, words)


def healthy(state: RolloutState, now: float) -> RolloutDecision:
    ended = replace(_running(state), phase=Phase.HEALTHY, since=now)
    words = "the candidate is the stable version now"
    if state.rollback:
        words = f"rolled back, {state.rollback}"
    return _moved(ended, Transition.HEALTHY, words)


def pause(
    state: RolloutState, why: PauseReason, words: str, now: float, *, done: bool = False
) -> RolloutDecision:
    """The weight stays as it is. `done`: the phase is over and only waits for a person."""
    paused = replace(
        state,
        phase=Phase.PAUSED,
        interrupts=state.place,
        pause=why,
        done=done,
        paused_at=state.paused_at if state.phase is Phase.PAUSED else now,
    )
    return _moved(paused, Transition.PAUSE, f"paused ({why}): {words}")


def resume(state: RolloutState, words: str, now: float) -> RolloutDecision:
    """On with the phase; the pause does not count as part of the hold."""
    away = now - state.paused_at
    running = replace(
        _running(state),
        deadline=state.deadline + away,
        data_until=now + state.plan.no_data_s,
        unread=0,
        undecided_at=0.0,
    )
    return _moved(running, Transition.RESUME, words)


def abort(state: RolloutState, words: str, now: float) -> RolloutDecision:
    """All traffic back to the stable version, in one change of the weight."""
    aborting = replace(
        _running(state),
        phase=Phase.ABORTING,
        weight=0,
        mirror=0,
        since=now,
        deadline=now + SETTLE_S,
    )
    said = (
        f"not gone back, all traffic stays: {words}" if state.rollback else f"rolled back: {words}"
    )
    return _moved(aborting, Transition.ABORT, said)


def degrade(state: RolloutState, now: float) -> RolloutDecision:
    """The reason stays that of the abort."""
    ended = replace(state, phase=Phase.DEGRADED, since=now)
    return RolloutDecision(ended, Transition.DEGRADE, state.reason)


def supersede(state: RolloutState, by: str, now: float) -> RolloutDecision:
    """A newer candidate takes its place; the stable version is still the same."""
    ended = replace(_running(state), phase=Phase.SUPERSEDED, weight=0, mirror=0, since=now)
    return _moved(ended, Transition.SUPERSEDE, f"superseded by {by}")


def retry(state: RolloutState, now: float) -> RolloutDecision:
    """Again from the beginning."""
    fresh = RolloutState(state.plan, state.shortcut, state.rollback, since=now, began_at=now)
    return _moved(fresh, Transition.RETRY, "retried")


def _begun(
    state: RolloutState, phase: Phase, arms: RolloutTotals, now: float, hold_s: float, sample: int
) -> RolloutState:
    """Counting anew; an ended step is kept to be compared with as well."""
    strata = state.windows.strata
    if state.place is Phase.STEP:
        strata = (*strata, current(state, arms))
    return replace(
        _running(state),
        phase=phase,
        mirror=0,
        since=now,
        deadline=now + hold_s,
        min_sample=sample,
        data_requests=0,
        data_until=now + state.plan.no_data_s,
        undecided_at=0.0,
        windows=opened(arms, phase, now, strata),
    )


def _running(state: RolloutState) -> RolloutState:
    return replace(state, phase=state.place, interrupts=None, pause=None, done=False)


def _moved(state: RolloutState, transition: Transition, words: str) -> RolloutDecision:
    return RolloutDecision(replace(state, reason=words), transition, words)


def _share(weight: int) -> str:
    return f"{percent(weight):g} %"


def _why_straight(state: RolloutState) -> str:
    if state.plan.mode is not Mode.IMMEDIATE:
        return state.shortcut or "promoted in full"
    return state.shortcut or state.rollback or "the plan's mode is immediate"

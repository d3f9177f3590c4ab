"""What came of the requests of one execution, as their sequences need to know it."""

import logging

from backends.errors import BackendError, InstanceDied, Reschedule, SequenceLost
from backends.seam import BatchResult
from schedulers.instance_thread import Run
from schedulers.policy.slots import Key, SlotLane

_log = logging.getLogger(__name__)


def warn_of_conflict(key: Key, model: str) -> None:
    """A sequence has begun whose id another one still has; in Triton's words."""
    _log.warning(
        "sequence %s for model '%s' has a conflict. The previous sequence did not end "
        "before this sequence start. Previous sequence will be terminated early.",
        key,
        model,
    )


def lost_with_instance(lane: SlotLane) -> SequenceLost:
    """What the requests of a lane's sequences are told when the instance's process has died."""
    sequences = lane.sequences.values()
    waiting = next((live.waiting[0] for live in sequences if live.waiting), None)
    known = waiting or next((live.running for live in sequences if live.running), None)
    whose = f"model '{known.request.model}' " if known is not None else "the model "
    return SequenceLost(
        f"{whose}has lost this sequence: the process of its instance died, and the sequence's "
        "state with it; start the sequence again"
    )


def set_aside(run: Run, errors: list[Exception | None]) -> None:
    """Leave in the run what is to be answered: not the requests that run once more."""
    outcome = run.outcome
    assert isinstance(outcome, BatchResult)
    kept = [i for i, error in enumerate(errors) if not isinstance(error, Reschedule)]
    run.tickets = [run.tickets[i] for i in kept]
    run.requests = len(kept)
    run.outcome = outcome._replace(
        results=[outcome.results[i] for i in kept],
        parameters={
            place: outcome.parameters[i] for place, i in enumerate(kept) if i in outcome.parameters
        },
    )


def errors_of(run: Run) -> list[Exception | None]:
    """How each request of the run ended."""
    outcome = run.outcome
    if isinstance(outcome, BatchResult) and len(outcome.results) == len(run.tickets):
        return [one if isinstance(one, Exception) else None for one in outcome.results]
    if isinstance(outcome, BackendError) and not isinstance(outcome, InstanceDied):
        return [outcome] * len(run.tickets)
    lost = SequenceLost(f"the instance of this sequence died ({outcome}); start the sequence again")
    return [lost] * len(run.tickets)

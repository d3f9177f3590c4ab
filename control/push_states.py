"""The life of a push, as a table: which state may follow which. Pure.

received ──▶ accepted ──▶ deployed ──▶ served
    │            │            ├──────▶ failed
    │            ├────────────┴──────▶ superseded
    │            └──▶ failed
    ├──▶ stored      (moved a ref that is not deployed)
    └──▶ abandoned   (the ref never moved)
refused              (never received: pre-receive said no)
"""

from enum import StrEnum


class PushState(StrEnum):
    RECEIVED = "received"  # pre-receive said yes; the ref has not moved yet
    ACCEPTED = "accepted"  # the ref has moved
    DEPLOYED = "deployed"  # snapshots are sealed, and gateways are told
    SERVED = "served"  # a gateway says that it is loaded
    FAILED = "failed"  # it could not be deployed, or a gateway could not load it
    REFUSED = "refused"
    ABANDONED = "abandoned"
    STORED = "stored"
    SUPERSEDED = "superseded"  # a later commit was deployed first


NEXT: dict[PushState, frozenset[PushState]] = {
    PushState.RECEIVED: frozenset({PushState.ACCEPTED, PushState.STORED, PushState.ABANDONED}),
    PushState.ACCEPTED: frozenset({PushState.DEPLOYED, PushState.FAILED, PushState.SUPERSEDED}),
    PushState.DEPLOYED: frozenset({PushState.SERVED, PushState.FAILED, PushState.SUPERSEDED}),
    PushState.SERVED: frozenset(),
    PushState.FAILED: frozenset(),
    PushState.REFUSED: frozenset(),
    # Given up by a deployer that started while git was still moving the ref: git is right.
    PushState.ABANDONED: frozenset({PushState.ACCEPTED, PushState.STORED}),
    PushState.STORED: frozenset(),
    PushState.SUPERSEDED: frozenset(),
}

UNFINISHED = (PushState.RECEIVED, PushState.ACCEPTED, PushState.DEPLOYED)
"""What a deployer still has to do something about."""

ENDS = tuple(state for state in PushState if state not in UNFINISHED)


def may_follow(state: PushState, after: PushState) -> bool:
    return state in NEXT[after]

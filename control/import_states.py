"""The life of an import, as a table: which state may follow which. Pure.

queued ──▶ fetching ──▶ checking ──▶ deployed ──▶ served
  │           │            │            └───────▶ failed
  └───────────┴────────────┴──▶ failed | cancelled
"""

from enum import StrEnum


class ImportState(StrEnum):
    QUEUED = "queued"
    FETCHING = "fetching"  # bytes arrive in the staging folder
    CHECKING = "checking"  # all is there; it is looked at and sealed
    DEPLOYED = "deployed"  # the snapshot is sealed, and gateways are told
    SERVED = "served"  # a gateway says that it is loaded
    FAILED = "failed"
    CANCELLED = "cancelled"


_GIVEN_UP = frozenset({ImportState.FAILED, ImportState.CANCELLED})

NEXT: dict[ImportState, frozenset[ImportState]] = {
    ImportState.QUEUED: _GIVEN_UP | {ImportState.FETCHING},
    ImportState.FETCHING: _GIVEN_UP | {ImportState.CHECKING},
    ImportState.CHECKING: _GIVEN_UP | {ImportState.DEPLOYED},
    ImportState.DEPLOYED: frozenset({ImportState.SERVED, ImportState.FAILED}),
    ImportState.SERVED: frozenset(),
    ImportState.FAILED: frozenset(),
    ImportState.CANCELLED: frozenset(),
}

UNFINISHED = tuple(state for state in ImportState if NEXT[state])
"""What an importer still has to do something about."""

ENDS = tuple(state for state in ImportState if not NEXT[state])


def may_follow(state: ImportState, after: ImportState) -> bool:
    return state in NEXT[after]

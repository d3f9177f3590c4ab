"""How a version is: its load state and what it answers, in the words that everybody uses. Pure."""

from collections.abc import Iterable

from msgspec import Struct

STATES = ("FAILED", "FAILING", "DEGRADED", "DRAINING", "LOADING", "UNLOADED", "READY")
"""The worst first. Beside the states of loading: FAILING is loaded and does not answer as it
should, DEGRADED answers, and worse than it should."""

FAILED, FAILING, DEGRADED = "FAILED", "FAILING", "DEGRADED"
LOADING, UNLOADED, READY = "LOADING", "UNLOADED", "READY"

OK = "ok"
LOAD_STATES = ("loading", "draining", "unloaded")
LOAD_ERROR, NO_INSTANCE, HUNG, RELOAD_FAILED = "load_error", "no_instance", "hung", "reload_failed"
CRASH_LOOP, ERRORS, QUEUE_FULL = "crash_loop", "errors", "queue_full"
SLOW, QUEUE_TIME = "slow", "queue_time"

CODES = (
    *(OK, *LOAD_STATES, LOAD_ERROR, NO_INSTANCE, HUNG, RELOAD_FAILED),
    *(CRASH_LOOP, ERRORS, QUEUE_FULL, SLOW, QUEUE_TIME),
)
"""Every reason there is, docs/metrics.md says of each what it means."""


class VersionHealth(Struct, frozen=True, array_like=True):
    """How a version is on one server: one of STATES, why (one of CODES, and a sentence; "" when
    there is nothing to say), and since when its gateway saw it so, in seconds since the epoch."""

    state: str
    code: str
    reason: str
    since: float


def of_load(state: str, reason: str, since: float) -> VersionHealth:
    """Of its load state alone, where nothing is known of what it answers."""
    if state == READY:
        return VersionHealth(DEGRADED if reason else READY, RELOAD_FAILED if reason else OK, reason,
                             since)  # fmt: skip
    if state in STATES and state != FAILED:
        return VersionHealth(state, state.lower(), reason, since)
    return VersionHealth(FAILED, LOAD_ERROR, reason, since)


def rank(state: str) -> int:
    """The worst first; a word that only another version of the software knows last."""
    return STATES.index(state) if state in STATES else len(STATES)


def worst(states: Iterable[str]) -> str:
    """Of several versions, or of one on several servers; "" of none."""
    return min(states, key=rank, default="")

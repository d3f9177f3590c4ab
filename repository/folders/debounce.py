"""Which folders have come to rest: a folder counts once two scans in a row saw it the same.

Pure. A model that is being copied keeps its last form (or stays away when it is new) and holds
nobody else up.
"""

from dataclasses import dataclass

from repository.folders.presence import States


@dataclass(frozen=True, slots=True)
class DebounceState:
    """`last` is what the latest scan saw, `stable` what may be believed."""

    last: States
    stable: States

    @property
    def at_rest(self) -> bool:
        """Whether everything seen is believed, so that only a new change needs another scan."""
        return self.last == self.stable


NOTHING = DebounceState({}, {})


def settle(before: DebounceState, states: States) -> DebounceState:
    """Decide what may be believed after a scan saw `states`; absence needs two scans as well."""
    stable = {}
    for key in (*states, *(key for key in before.stable if key not in states)):
        now = states.get(key)
        state = now if now == before.last.get(key) else before.stable.get(key)
        if state is not None:
            stable[key] = state
    return DebounceState(states, stable)

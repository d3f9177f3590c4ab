"""When a dead worker may live again: 0.1 s after its death, twice as long after each next one."""

from dataclasses import dataclass

FIRST_SECS = 0.1
LONGEST_SECS = 10.0
HEALTHY_SECS = 60.0


@dataclass(slots=True)
class Backoff:
    """Decides; knows no clock."""

    _next_secs: float = FIRST_SECS

    def after(self, lived_secs: float) -> float:
        """Seconds to wait after a life of `lived_secs` (0 for one that never got ready)."""
        if lived_secs >= HEALTHY_SECS:
            self._next_secs = FIRST_SECS
        wait = self._next_secs
        self._next_secs = min(LONGEST_SECS, wait * 2)
        return wait

"""When to restart a process that has ended: soon, and twice as late after each next end. Pure."""

from dataclasses import dataclass, field


@dataclass(slots=True)
class Backoff:
    """Decides; knows no clock. A process that lived for `healthy_secs` starts over with
    `first_secs`; no wait is longer than `longest_secs`."""

    first_secs: float = 0.1
    longest_secs: float = 10.0
    healthy_secs: float = 60.0
    _next_secs: float = field(default=0.0, init=False)

    def after(self, lived_secs: float) -> float:
        """Seconds to wait after a life of `lived_secs` (0 for one that never got ready)."""
        if lived_secs >= self.healthy_secs or not self._next_secs:
            self._next_secs = self.first_secs
        wait = self._next_secs
        self._next_secs = min(self.longest_secs, wait * 2)
        return wait

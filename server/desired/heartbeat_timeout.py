"""Decides whether a process that should send heartbeats has stopped: told of looks and beats. Pure.

Only time in which the watcher itself ran counts as silence. After a pause of its own (a suspended
machine, a stopped process group, a loop that stood still) the other side gets all its time anew:
it could not run either, or it did and nobody read what it sent.
"""

from dataclasses import dataclass, field

BEAT_S = 1.0
"""Between two heartbeats, and between two looks."""

SILENT_S = 15.0
"""So long without a heartbeat, and the process counts as stopped. Its heartbeats come from a thread
that does nothing else: beside 16 busy processes on two cores, and a thread of its own that computed
in Python, the longest gap between two was 1.7 s."""

START_S = 120.0
"""As long before the first one: interpreter and imports, on a machine that is busy with loads."""

LONGEST_GAP_S = 3.0
"""Between two looks; a longer one means that the watcher did not run."""


@dataclass(slots=True)
class HeartbeatTimeout:
    """Of one process, from its start; all times are monotonic seconds."""

    looked_at: float
    began: bool = False
    silent_s: float = field(default=0.0)

    def look(self, beats: int, now: float, is_stopped: bool = False) -> bool:
        """Whether it has stopped. `beats`: how many arrived since the look before; `is_stopped`:
        the kernel says that a signal stopped it, which no start takes longer for."""
        gap_s, self.looked_at = now - self.looked_at, now
        if beats or gap_s > LONGEST_GAP_S:
            self.began = self.began or beats > 0
            self.silent_s = 0.0
            return False
        self.silent_s += gap_s
        return self.silent_s > (SILENT_S if self.began or is_stopped else START_S)

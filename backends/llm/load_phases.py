"""What a load spends its time on, phase after phase; no torch."""

import os
import time
from collections.abc import Sequence
from pathlib import Path

from msgspec import Struct


class LoadPhase(Struct, frozen=True, array_like=True):
    """`bytes`: that it read, or took, 0 where there are none to tell."""

    name: str
    seconds: float
    bytes: int = 0


class PhaseClock:
    """Phases that follow each other. `began_s`: when the first did, by `time.monotonic`."""

    def __init__(self, began_s: float) -> None:
        self.phases: list[LoadPhase] = []
        self._at_s = began_s

    def end(self, name: str, bytes: int = 0) -> None:
        """What was done since the phase before was this."""
        now_s = time.monotonic()
        self.phases.append(LoadPhase(name, now_s - self._at_s, bytes))
        self._at_s = now_s


def process_start_s() -> float:
    """When this process was started, by `time.monotonic`, to a hundredth of a second; see
    proc_pid_stat(5)."""
    fields = Path("/proc/self/stat").read_text().rpartition(")")[2].split()
    age_s = time.clock_gettime(time.CLOCK_BOOTTIME) - int(fields[19]) / os.sysconf("SC_CLK_TCK")
    return time.monotonic() - age_s


def in_words(phases: Sequence[LoadPhase]) -> str:
    """Such as "start 1.21 s, weights 0.70 s (988 MB)"."""
    return ", ".join(
        f"{one.name} {one.seconds:.2f} s" + (f" ({one.bytes / 1e6:,.0f} MB)" if one.bytes else "")
        for one in phases
    )

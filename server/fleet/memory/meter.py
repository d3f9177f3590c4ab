"""Measures what a load inside this process takes: the difference that it makes to the process's
resident memory, where nothing else is loaded or closed meanwhile.

Called on loading threads. Requests under way add noise of a few MiB; what is small is not measured.
"""

import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from server.process.allocator import return_free_memory

MEASURABLE_BYTES = 8 << 20
"""Less than this disappears in what requests take and return meanwhile."""

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
_RESET_PEAK = "5"  # proc(5): the peak of resident memory begins anew


class MeasuredBytes(NamedTuple):
    """By how much resident memory differs afterwards, and at most did meanwhile."""

    resident: int
    peak: int


class MeterReading(NamedTuple):
    """Resident bytes before; `number` is 0 where something else was under way."""

    number: int
    resident: int


def plausible(found: MeasuredBytes, estimate: int) -> MeasuredBytes:
    """What counts of a reading: requests that come and go meanwhile are in it as well, so that it
    is believed up to twice the estimate and down to a quarter of it."""
    least, most = estimate // 4, estimate * 2
    resident = min(max(found.resident, least), most)
    return MeasuredBytes(resident, min(max(found.peak, resident), most))


class LoadMeter:
    """From any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._number = 0
        self._active = 0

    def begin(self) -> MeterReading:
        with self._lock:
            self._number += 1
            self._active += 1
            if self._active > 1:
                return MeterReading(0, 0)
            return_free_memory()
            with suppress(OSError):
                _CLEAR.write_text(_RESET_PEAK)
            return MeterReading(self._number, resident_and_peak()[0])

    @contextmanager
    def disturbed(self) -> Iterator[None]:
        """Inside, a load or a close of this process is under way that is not measured: what is
        measured meanwhile does not count."""
        with self._lock:
            self._number += 1
            self._active += 1
        try:
            yield
        finally:
            with self._lock:
                self._active -= 1

    def end(self, reading: MeterReading) -> MeasuredBytes | None:
        """None where it was not alone, or nothing can be measured here."""
        with self._lock:
            self._active -= 1
            alone = reading.number == self._number and bool(reading.resident)
            peak = resident_and_peak()[1]
            return_free_memory()
            resident = resident_and_peak()[0]
        if not alone or not resident:
            return None
        return MeasuredBytes(resident - reading.resident, max(peak, resident) - reading.resident)


def resident_and_peak() -> tuple[int, int]:
    """Bytes of this process now, and at most since the peak was reset; zeros where unknown."""
    found = {"VmRSS:": 0, "VmHWM:": 0}
    with suppress(OSError):
        for line in _STATUS.read_text().splitlines():
            name, _, rest = line.partition("\t")
            if name in found:
                found[name] = int(rest.split()[0]) * 1024
    return found["VmRSS:"], found["VmHWM:"]

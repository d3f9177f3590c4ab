"""Counts what arrives: enforces the limit of bytes and tells how far a fetch has come."""

import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from repository.sources.errors import TooLarge

REPORT_EVERY_S = 0.25
_WINDOW_REPORTS = 40


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a fetch is. `bytes_total` is None while some file's size is unknown.

    `bytes_per_s` is over about the last ten seconds and counts only what this call received.
    """

    bytes_done: int
    bytes_total: int | None
    files_done: int
    files_total: int
    file: str
    bytes_per_s: float


class Meter:
    """Adds up one fetch and reports at most every REPORT_EVERY_S, plus when a file ends."""

    def __init__(
        self,
        max_bytes: int,
        report: Callable[[Progress], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._max_bytes = max_bytes
        self._report = report
        self._clock = clock
        self._done = 0
        self._received = 0
        self._sizes: dict[str, int | None] = {}
        self._files_done = 0
        self._file = ""
        self._points = deque([(clock(), 0)], maxlen=_WINDOW_REPORTS)

    def expect(self, sizes: dict[str, int | None]) -> None:
        """The files to come, each with its size in bytes or None; raises `TooLarge`."""
        self._sizes = dict(sizes)
        self._refuse(sum(size or 0 for size in sizes.values()))

    def begin(self, file: str, kept: int) -> None:
        """A file's transfer begins; `kept` bytes of it are there already."""
        self._file = file
        self._done += kept
        self._tell(now=True)

    def size(self, size: int) -> None:
        """The store told the current file's size; raises `TooLarge`."""
        if self._sizes.get(self._file) != size:
            self.expect(self._sizes | {self._file: size})

    def received(self, count: int) -> None:
        """`count` more bytes arrived; raises `TooLarge`."""
        self._done += count
        self._received += count
        self._refuse(self._done)
        self._tell(now=False)

    def dropped(self, count: int) -> None:
        """`count` bytes that had been counted are void: the file begins anew."""
        self._done -= count

    def finished(self) -> None:
        self._files_done += 1
        self._tell(now=True)

    def _refuse(self, count: int) -> None:
        if count > self._max_bytes:
            raise TooLarge(
                f"the source has at least {count} bytes, more than the limit of {self._max_bytes}; "
                "raise the limit, or name a smaller part of the source"
            )

    def _tell(self, now: bool) -> None:
        at, first = self._clock(), self._points[0]
        if not now and at - self._points[-1][0] < REPORT_EVERY_S:
            return
        self._points.append((at, self._received))
        passed = max(at - first[0], REPORT_EVERY_S)
        rate = (self._received - first[1]) / passed
        total = sum(size or 0 for size in self._sizes.values())
        total_or_none = None if None in self._sizes.values() else total
        files = len(self._sizes)
        self._report(Progress(self._done, total_or_none, self._files_done, files, self._file, rate))

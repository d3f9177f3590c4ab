"""How far long work has come, on one line of a terminal; nothing where stderr is none."""

import sys
import time

_EVERY_S = 0.1
_ERASE = "\r\x1b[K"


class ProgressLine:
    """`with ProgressLine("copying", 100) as one: one.add(7)`; a `total` of 0 is not known. `unit`
    divides what is shown: 1 for things, 2**20 for MiB. For `after_s` nothing is shown."""

    def __init__(
        self,
        label: str,
        total: int = 0,
        unit: int = 1,
        unit_name: str = "",
        after_s: float = 0.5,
    ) -> None:
        self._label, self._total, self._unit = label, total, unit
        self._unit_name = f" {unit_name}" if unit_name else ""
        self._done = 0
        self._is_shown = False
        self._next_at = time.monotonic() + after_s

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(self, *_: object) -> None:
        if self._is_shown:
            sys.stderr.write(_ERASE)
            sys.stderr.flush()

    def add(self, count: int = 1) -> None:
        self._done += count
        now = time.monotonic()
        if now < self._next_at or not sys.stderr.isatty():
            return
        self._is_shown, self._next_at = True, now + _EVERY_S
        total = f" of {self._total // self._unit}" if self._total else ""
        text = f"{self._label}: {self._done // self._unit}{total}{self._unit_name}"
        sys.stderr.write(_ERASE + text)
        sys.stderr.flush()

"""How much of a report is kept: it comes from a job's process, which may say anything. Pure."""

from typing import Any

import msgspec

from control.jobs.report import Report
from control.text import stored

LISTS = {
    "reasons": 50,
    "warnings": 50,
    "figures": 500,
    "tables": 50,
    "columns": 64,
    "rows": 2_000,
    "plots": 50,
    "series": 32,
    "points": 2_000,
    "graphs": 8,
    "nodes": 2_000,
    "reads": 64,
}
"""Elements that are kept of a list, by its name in `Report`."""
ENTRIES = 2_000
"""Of other lists, and of objects."""
POINTS = 20_000
"""Of all plots together."""
TEXT_CHARACTERS, CONFIG_CHARACTERS = 4_096, 65_536
DEPTH = 12
"""Of objects and lists in each other, which only a `spec` can have without end."""
_LARGEST = 2**63 - 1


def bounded(report: Report) -> Report:
    """The report as it is kept, with a warning that names what is longer than that. Whole numbers
    of more than 64 bits become the greatest one. Raises RecursionError for one that is nested too
    deep to be looked at."""
    limiter = _ReportLimiter()
    kept = msgspec.convert(limiter.value(msgspec.to_builtins(report), "report", 0), Report)
    if not limiter.cut:
        return kept
    names = ", ".join(sorted(limiter.cut))
    warning = f"The report was longer than is kept; it is cut in: {names}"
    return msgspec.structs.replace(kept, warnings=(*kept.warnings, warning))


class _ReportLimiter:
    """Walks one report; `cut`: the names of what was longer than is kept."""

    def __init__(self) -> None:
        self.cut: set[str] = set()
        self._points_left = POINTS

    def value(self, value: Any, name: str, depth: int) -> Any:
        """What is kept of a value, which is found under `name`."""
        if isinstance(value, str):
            return self._text(value, name)
        if isinstance(value, dict | list | tuple) and depth >= DEPTH:
            self.cut.add(name)
            return None
        if isinstance(value, dict):
            kept = self._some(list(value.items()), name, ENTRIES)
            return {self._text(key, name): self.value(one, key, depth + 1) for key, one in kept}
        if isinstance(value, list | tuple):
            return [self.value(one, name, depth + 1) for one in self._elements(value, name, depth)]
        if isinstance(value, int) and not isinstance(value, bool):
            return max(-_LARGEST, min(value, _LARGEST))
        return value

    def _elements(self, value: list[Any] | tuple[Any, ...], name: str, depth: int) -> list[Any]:
        if name == "points" and depth == _POINTS_DEPTH:
            kept = self._some(list(value), name, min(LISTS[name], self._points_left))
            self._points_left -= len(kept)
            return kept
        return self._some(list(value), name, LISTS.get(name, ENTRIES))

    def _some(self, values: list[Any], name: str, most: int) -> list[Any]:
        if len(values) > most:
            self.cut.add(name)
        return values[:most]

    def _text(self, text: str, name: str) -> str:
        most = CONFIG_CHARACTERS if name == "config" else TEXT_CHARACTERS
        if len(text) > most:
            self.cut.add(name)
        return stored(text, most)


_POINTS_DEPTH = 5
"""Of the list of points in `report.plots[].series[]`."""

"""Triton's trace settings: their values, their names on the wire, and how a change is read. Pure.

`server.trace.tracing` keeps them; `server.rest.endpoints.trace` and `server.grpc.trace` bring
changes from the wires. The texts are Triton's, where it has one. Imports nothing of the server: the
command line reads `--trace-config` with it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

OFF, TIMESTAMPS, TENSORS = "OFF", "TIMESTAMPS", "TENSORS"


class InvalidSetting(ValueError):
    """A trace setting that cannot be; says what was given and what would do."""


Given = Mapping[str, Sequence[str] | None]
"""A change as it came over a wire: the texts of each setting named; None or empty to clear it."""

Changes = Mapping[str, Any]
"""A change that was read: a field of TraceSettings → its value, None to fall back."""


@dataclass(frozen=True, slots=True)
class TraceSettings:
    """What is traced. `level`: TIMESTAMPS, TENSORS, both, or empty for off. Every `rate`-th
    request is traced; `count` more of them, -1 for no end. A file per `log_frequency` traces, 0
    for one file."""

    level: tuple[str, ...] = ()
    rate: int = 1000
    count: int = -1
    log_frequency: int = 0


FIELDS = {
    "trace_level": "level",
    "trace_rate": "rate",
    "trace_count": "count",
    "log_frequency": "log_frequency",
}
"""Names on the wire → fields."""

_BOUNDS = {"trace_rate": (0, 2**32 - 1), "trace_count": (-1, 2**31 - 1)}
_BOUNDS["log_frequency"] = _BOUNDS["trace_rate"]


def read_changes(given: Given) -> dict[str, Any]:
    """The change in `given`. Raises InvalidSetting."""
    changes: dict[str, Any] = {}
    for name, texts in given.items():
        field = FIELDS.get(name)
        if field is None:
            raise InvalidSetting(
                f"'{name}' is not a trace setting that can be updated: {', '.join(FIELDS)}"
            )
        if not texts:
            changes[field] = None
        elif name == "trace_level":
            changes[field] = read_level(texts)
        elif len(texts) > 1:
            raise InvalidSetting(f"expect only 1 value for '{name}'")
        else:
            changes[field] = read_number(name, texts[0])
    return changes


def read_level(words: Sequence[str]) -> tuple[str, ...]:
    """The level that `words` name, in the order Triton shows it. Raises InvalidSetting."""
    for word in words:
        if word not in (OFF, TIMESTAMPS, TENSORS):
            raise InvalidSetting(
                f"Unable to parse 'trace_level', got: {word}. "
                f"Expecting {OFF}, {TIMESTAMPS} or {TENSORS}"
            )
    if OFF in words and len(words) > 1:
        raise InvalidSetting("Expect only one trace level 'OFF' is specified")
    return tuple(word for word in (TIMESTAMPS, TENSORS) if word in words)


def read_number(name: str, text: str) -> int:
    """The number in `text` for the setting `name` of the wire. Raises InvalidSetting."""
    low, high = _BOUNDS[name]
    try:
        number = int(text)
    except ValueError:
        raise InvalidSetting(f"Unable to parse '{name}', got: {text}") from None
    if name == "trace_count" and number < low:
        raise InvalidSetting(f"Unable to parse '{name}'. Expecting value >= {low}, got: {text}")
    if not low <= number <= high:
        raise InvalidSetting(
            f"Unable to parse '{name}', value is out of range [ {low}, {high} ], got: {text}"
        )
    return number

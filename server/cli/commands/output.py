"""What a command shows: aligned tables with local times for people, JSON for programs. Pure."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from control.clock import text_of
from control.views import AliasView, RouteDocument, to_plain

Json = Mapping[str, Any]
Columns = Mapping[str, str | Callable[[Any], Any]]
"""Header → field of an item, or a function of it."""

_NONE = "-"
_WIDEST = 60


@dataclass(frozen=True, slots=True)
class ListOutput:
    """A list of Structs; `empty` is for people when there is nothing in it."""

    items: Sequence[Any]
    columns: Columns
    empty: str = "none"


@dataclass(frozen=True, slots=True)
class RecordOutput:
    """One thing with all it has: a Struct, or an object of them."""

    item: Any


@dataclass(frozen=True, slots=True)
class MessageOutput:
    """A sentence for people, with the thing it is about; `result` is for stdout alone, when a
    script would take it from there; `written`: all there is has been shown already."""

    sentence: str
    item: Any = None
    result: str = ""
    written: bool = False


Shown = ListOutput | RecordOutput | MessageOutput


def as_json(shown: Shown) -> str:
    """One JSON document and a newline."""
    document = shown.items if isinstance(shown, ListOutput) else shown.item
    return json.dumps(to_plain(document), indent=2, ensure_ascii=False, default=text_of) + "\n"


def as_text(shown: ListOutput | RecordOutput, whole: bool = False) -> str:
    """Aligned lines; "" for an empty list. Long cells of a list are cut unless it is to be
    `whole`, as for programs that read it."""
    if isinstance(shown, RecordOutput):
        return _aligned([(name, cell(value)) for name, value in _flat(to_plain(shown.item))])
    rows = [tuple(cell(_pick(item, how)) for how in shown.columns.values()) for item in shown.items]
    if not whole:
        rows = [tuple(map(_cut, row)) for row in rows]
    return _aligned([tuple(shown.columns), *rows]) if rows else ""


def pending_text(item: AliasView | RouteDocument) -> list[str]:
    """Why an alias or a route is not in force, server by server."""
    return [f"server {one.server[:8]}: {one.reason}" for one in item.pending]


def cell(value: Any) -> str:
    """A value in one line, without characters that could play with a terminal."""
    if value is None or value in ("", [], (), {}):
        return _NONE
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(cell, value))
    if isinstance(value, Mapping):
        return ", ".join(f"{plain(str(name))}={cell(one)}" for name, one in value.items())
    return plain(local_time(value) if isinstance(value, str | datetime) else str(value))


def plain(text: str) -> str:
    return "".join(char if char.isprintable() else " " for char in text)


def local_time(text: str | datetime) -> str:
    """A moment of the API in the time of here; other texts as they are."""
    if isinstance(text, datetime):
        return f"{text.astimezone():%Y-%m-%d %H:%M:%S %Z}"
    if len(text) < 20 or not text.endswith("Z") or "T" not in text:
        return text
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        return text
    return local_time(moment)


def _pick(item: Any, how: str | Callable[[Any], Any]) -> Any:
    return getattr(item, how) if isinstance(how, str) else how(item)


def _flat(item: Json, prefix: str = "") -> list[tuple[str, Any]]:
    found: list[tuple[str, Any]] = []
    for name, value in item.items():
        if isinstance(value, Mapping) and value:
            found += _flat(value, f"{prefix}{name}.")
        elif isinstance(value, list | tuple) and value and isinstance(value[0], Mapping):
            for index, one in enumerate(value):  # as jq writes it: no number of a version
                found += _flat(one, f"{prefix}{name}[{index}].")
        else:
            found.append((prefix + name, value))
    return found


def _cut(text: str) -> str:
    return text if len(text) <= _WIDEST else text[: _WIDEST - 1] + "…"


def _aligned(table: Sequence[tuple[str, ...]]) -> str:
    widths = [max(map(len, column)) for column in zip(*table, strict=True)]
    lines = (
        "  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip()
        for row in table
    )
    return "\n".join(lines) + "\n"

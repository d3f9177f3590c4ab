"""Why protobuf refused a config: every field, enum value and type that does not fit the schema.

Called after protobuf has failed, because it stops at the first complaint, does not say what would
have been allowed, and points at the end of a line as often as at the mistake.
"""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

from repository.config.finding_report import more_at
from repository.config.positions import Mark, Positions
from repository.findings import MOST_FINDINGS, Finding
from repository.model import ModelConfig

_INTEGERS: dict[int, tuple[int, int]] = {
    FieldDescriptor.TYPE_INT32: (-(1 << 31), (1 << 31) - 1),
    FieldDescriptor.TYPE_INT64: (-(1 << 63), (1 << 63) - 1),
    FieldDescriptor.TYPE_UINT32: (0, (1 << 32) - 1),
    FieldDescriptor.TYPE_UINT64: (0, (1 << 64) - 1),
}
_OCTAL = re.compile("-?0[0-7]+")
_TRUTHS = frozenset(("true", "false", "True", "False", "t", "f", "0", "1"))


def explain(positions: Positions) -> list[Finding]:
    """One finding for each value that ModelConfig's schema rules out, in the text's order; of very
    many the first, and one that says so."""
    schema = _Schema()
    findings: list[Finding] = []
    for mark in positions.marks:
        complaint = schema.complaint(mark)
        if complaint is None:
            continue
        if len(findings) == MOST_FINDINGS:
            findings.append(more_at(positions.where, mark.line, mark.column))
            break
        findings.append(Finding(positions.where, *complaint))
    return findings


class _Schema:
    """ModelConfig's descriptors, found again for each canonical path as the marks go by."""

    def __init__(self) -> None:
        self._messages: dict[str, tuple[str, Any]] = {"": ("", ModelConfig.DESCRIPTOR)}
        self._oneofs: dict[tuple[str, str], str] = {}

    def complaint(self, mark: Mark) -> tuple[int, int, str, str] | None:
        parent, _, step = mark.path.rpartition(".")
        if parent not in self._messages:
            return None
        shown, descriptor = self._messages[parent]
        name, _, index = step.rstrip("]").partition("[")
        field = descriptor.fields_by_name.get(name)
        if field is None:
            return mark.line, mark.column, "E102", _unknown_field(name, descriptor, shown)
        path = f"{shown}{name}[{index}]" if field.is_repeated else f"{shown}{name}"
        if field.message_type is not None:
            self._messages[mark.path] = (f"{path}.", field.message_type)
        clash = self._clash(parent, field, index)
        if clash:
            return mark.line, mark.column, "E106", f"{path} {clash}"
        wrong = _wrong(field, mark.value)
        if wrong is None:
            return None
        return mark.value_line, mark.value_column, wrong[0], f"{path} {wrong[1]}"

    def _clash(self, parent: str, field: Any, index: str) -> str:
        if not field.is_repeated and index != "0":
            return "is given twice; give it once"
        if field.containing_oneof is None:
            return ""
        first = self._oneofs.setdefault((parent, field.containing_oneof.name), field.name)
        return "" if first == field.name else f"excludes {first}, given above; give one of them"


def _unknown_field(name: str, descriptor: Any, shown: str) -> str:
    inside = f"in {shown.rstrip('.')}" if shown else "in a model config"
    return f"unknown field {name} {inside}; {_offer(name, descriptor.fields_by_name)}"


def _wrong(field: Any, value: str | None) -> tuple[str, str] | None:
    """Code and complaint when `value` (None for a message) is not what the field takes."""
    if field.message_type is not None:
        return None if value is None else ("E105", f"must be a message in {{ }}, got {value}")
    if value is None:
        return "E105", f"must be {_kind_text(field)}, got a message"
    if field.enum_type is not None:
        return _wrong_enum(field.enum_type.values_by_name, value)
    if _fits(field, value):
        return None
    return "E105", f"must be {_kind_text(field)}, got {value}"


def _wrong_enum(allowed: Any, value: str) -> tuple[str, str] | None:
    bare = value.strip("\"'")
    number = _integer(value)
    if value in allowed or (number is not None and -(1 << 31) <= number < 1 << 31):
        return None
    if bare in allowed:
        return "E105", f"must be written without quotes: {bare}, got {value}"
    return "E104", f"has no value {value}; {_offer(bare, allowed)}"


def _offer(name: str, allowed: Iterable[str]) -> str:
    names = sorted(set(allowed) - {"TYPE_INVALID"})
    near = get_close_matches(name, names, n=1) or get_close_matches(name.upper(), names, n=1)
    suggestion = f"did you mean {near[0]}? " if near else ""
    return f"{suggestion}allowed: {', '.join(names)}"


def _kind_text(field: Any) -> str:
    if field.type in _INTEGERS:
        low, high = _INTEGERS[field.type]
        return f"an integer from {low} to {high}"
    if field.type == FieldDescriptor.TYPE_BOOL:
        return "true or false"
    if field.type == FieldDescriptor.TYPE_STRING:
        return "a quoted string"
    if field.enum_type is not None:
        return f"one of {', '.join(field.enum_type.values_by_name)}"
    return "a number"


def _fits(field: Any, value: str) -> bool:
    if field.type in _INTEGERS:
        low, high = _INTEGERS[field.type]
        number = _integer(value)
        return number is not None and low <= number <= high
    if field.type == FieldDescriptor.TYPE_BOOL:
        return value in _TRUTHS
    if field.type == FieldDescriptor.TYPE_STRING:
        return value[0] in "\"'"
    return _is_float(value)


def _integer(value: str) -> int | None:
    try:
        return int(value, 0)
    except ValueError:
        return int(value, 8) if _OCTAL.fullmatch(value) else None


def _is_float(value: str) -> bool:
    try:
        float(value.rstrip("fF") if value[-1:] in "fF" and value[:1].isdigit() else value)
    except ValueError:
        return False
    return True

"""The form of a job's spec, from the fields of its type, and what was typed as a spec. Pure."""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, get_args

import msgspec
from msgspec import inspect

from admin_ui.reports.seen import sentence
from admin_ui.services import ControlApiError
from control.jobs.spec import JobSpec

_OF_SOURCE = ("model", "version", "result_model")
"""Fields that the form has of its own."""
_NAMED = re.compile(r"(?:^|\s)((?:[a-z][a-z0-9_]*)(?:, [a-z][a-z0-9_]*)*): ")


@dataclass(frozen=True, slots=True)
class SpecField:
    """A field as the form has it. `kind`: "choice" (of `choices`), "number", "list" or "text";
    `usual`: the default as it is typed; `least`, `most`: bounds of a number, None for none."""

    name: str
    kind: str
    usual: str
    hint: str
    choices: tuple[str, ...] = ()
    least: float | None = None
    most: float | None = None
    required: bool = False

    @property
    def label(self) -> str:
        """As people read it: "per_channel" → "Per channel"."""
        return self.name.replace("_", " ").capitalize()

    @property
    def attributes(self) -> dict[str, str]:
        """Of the input."""
        if self.kind != "number":
            return {"autocomplete": "off"}
        bounds = {"min": self.least, "max": self.most}
        return {"step": "any"} | {name: f"{to:g}" for name, to in bounds.items() if to is not None}


@dataclass(frozen=True, slots=True)
class SpecForm:
    """A job type: what it does, and its fields."""

    type: str
    about: str
    fields: tuple[SpecField, ...]


@cache
def spec_forms() -> Mapping[str, SpecForm]:
    """By job type."""
    return {str(one.__struct_config__.tag): _form(one) for one in get_args(JobSpec)}


def read_spec(kind: str, typed: Mapping[str, str]) -> dict[str, Any]:
    """The fields that do not stand as usual, with the job's type.

    Raises ControlApiError naming the field for a list or a document that cannot be read.
    """
    form = spec_forms().get(kind)
    if form is None:
        known = ", ".join(spec_forms())
        wrong = f"there is no job type '{kind[:40]}'; there are {known}"
        raise ControlApiError(422, "invalid", wrong, "type")
    found: dict[str, Any] = {"type": kind}
    for one in form.fields:
        text = typed.get(one.name, one.usual).strip()
        if text != one.usual:
            found[one.name] = _value(one, text)
    return found


def _form(kind: Any) -> SpecForm:
    info = inspect.type_info(kind)
    assert isinstance(info, inspect.StructType)
    about, hints = _docs(kind)
    fields = [one for one in info.fields if one.name not in _OF_SOURCE]
    tag = str(kind.__struct_config__.tag)
    return SpecForm(tag, about, tuple(_field(one, hints.get(one.name, "")) for one in fields))


def _docs(kind: Any) -> tuple[str, dict[str, str]]:
    """The first sentence of the docstrings, and what they say of each field."""
    hints: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        if not issubclass(one, msgspec.Struct) or one is msgspec.Struct:
            continue
        for paragraph in re.split(r"\n\s*\n", one.__doc__ or "")[1:]:
            hints |= _hints(" ".join(paragraph.split()), frozenset(kind.__struct_fields__))
    first = re.split(r"\n\s*\n", kind.__doc__ or "")[0]
    return " ".join(first.split()), hints


def _hints(paragraph: str, names: frozenset[str]) -> dict[str, str]:
    """What stands behind each "name: " or "name, name: " of fields."""
    found = [one for one in _NAMED.finditer(paragraph) if names.issuperset(one[1].split(", "))]
    ends = [*(one.start() for one in found), len(paragraph)][1:]
    return {
        name: sentence(paragraph[one.end() : end].strip(" ;"))
        for one, end in zip(found, ends, strict=True)
        for name in one[1].split(", ")
    }


def _field(field: inspect.Field, hint: str) -> SpecField:
    kind, usual = field.type, _typed(field.default)
    if isinstance(kind, inspect.UnionType):  # a value, or nothing
        kind = next(one for one in kind.types if not isinstance(one, inspect.NoneType))
    name, required = field.name, field.required
    if isinstance(kind, inspect.LiteralType):
        choices = tuple(str(one) for one in kind.values)
        return SpecField(name, "choice", usual, hint, choices, required=required)
    if isinstance(kind, inspect.BoolType):
        return SpecField(name, "choice", usual, hint, ("true", "false"), required=required)
    if isinstance(kind, inspect.IntType | inspect.FloatType):
        least, most = kind.ge, kind.le
        return SpecField(name, "number", usual, hint, least=least, most=most, required=required)
    if isinstance(kind, inspect.StrType):
        return SpecField(name, "text", usual, hint, required=required)
    return SpecField(name, "list", usual, hint, required=required)


def _typed(default: Any) -> str:
    """A default as somebody would type it."""
    if default is msgspec.NODEFAULT or default is None or default == ():
        return ""
    if isinstance(default, bool):
        return str(default).lower()
    if isinstance(default, str | int | float):
        return str(default)
    if isinstance(default, tuple) and all(isinstance(one, str | int | float) for one in default):
        return ", ".join(map(str, default))
    return json.dumps(msgspec.to_builtins(default))


def _value(field: SpecField, text: str) -> Any:
    """What is typed, as JSON has it; the API says what is wrong with a value."""
    if field.kind == "choice" and field.choices == ("true", "false"):
        return text == "true"
    if field.kind == "number":
        return _number(text)
    if field.kind == "list" and text.startswith(("{", "[")):
        return _document(field, text)
    if field.kind == "list":
        return [_number(one.strip()) for one in text.split(",") if one.strip()]
    return text


def _document(field: SpecField, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        wrong = f"'{field.name}' is no JSON: {error}"
        raise ControlApiError(422, "invalid", wrong, field.name) from None


def _number(text: str) -> int | float | str:
    """The number that a text is; any other stays a text."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text

"""Bodies as frozen dataclasses: `part` says what a field means, `read_part` holds a value to it.

The same fields make the OpenAPI schemas (`control.api.schemas`). Pure.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Any, Literal, TypeVar, Union, get_args, get_origin, get_type_hints

from control.http_errors import MalformedRequest

T = TypeVar("T")

MAX_TEXT = 255
INT_BITS = 63
_NAMES: dict[type, str] = {
    str: "a string",
    int: "a whole number",
    float: "a number",
    bool: "true or false",
    list: "a list",
    dict: "an object",
}


@dataclass(frozen=True, slots=True)
class BodyField:
    """A field of a body: its name, its type, and the JSON Schema keywords about it."""

    name: str
    kind: Any
    rules: Mapping[str, Any]
    required: bool


def part(meaning: str, **schema: Any) -> dict[str, Any]:
    """To stand in a field's `Annotated`: `meaning` and `schema` (keywords such as maxLength,
    minimum, examples) go into the description; maxLength, minimum and maximum are enforced."""
    return {"description": meaning, **schema}


def parts_of(kind: Any) -> dict[str, BodyField]:
    """The fields of a body by name."""
    hints = get_type_hints(kind, include_extras=True)
    found = {}
    for one in fields(kind):
        plain, rules = get_args(hints[one.name])
        required = one.default is MISSING and one.default_factory is MISSING
        found[one.name] = BodyField(one.name, plain, rules, required)
    return found


def read_part(kind: type[T], document: Any) -> T:
    """A `kind` from a decoded JSON object. Raises MalformedRequest naming the field and the
    remedy."""
    if not isinstance(document, dict):
        raise MalformedRequest(f"the body is {_said(document)}; it must be an object")
    known = parts_of(kind)
    for name in document:
        if name not in known:
            raise MalformedRequest(
                f"there is no field '{name[:100]}'; there are {', '.join(known)}", name[:100]
            )
    for name, one in known.items():
        if one.required and name not in document:
            raise MalformedRequest(f"the field '{name}' is missing", name)
    return kind(**{name: _value(known[name], value) for name, value in document.items()})


def _value(one: BodyField, value: Any) -> Any:
    kind = one.kind
    if get_origin(kind) in (Union, types.UnionType):
        if value is None:
            return None
        kind = next(each for each in get_args(kind) if each is not types.NoneType)
    if get_origin(kind) is Literal:
        return _choice(get_args(kind), value, one.name)
    plain = get_origin(kind) or kind
    if not _is(plain, value):
        raise MalformedRequest(
            f"{one.name} is {_said(value)}; it must be {_NAMES[plain]}", one.name
        )
    if plain is list:
        _check_elements(value, kind, one.name)
    check_texts(value, one.name)
    _check_bounds(one, value)
    return float(value) if plain is float else value


def _is(kind: type, value: Any) -> bool:
    if isinstance(value, bool):
        return kind is bool
    return isinstance(value, (int, float) if kind is float else kind)


def _choice(allowed: tuple[Any, ...], value: Any, name: str) -> Any:
    if value not in allowed:
        raise MalformedRequest(f"{name} is {_said(value)}; give {', '.join(allowed)}", name)
    return value


def _check_elements(value: list[Any], kind: Any, name: str) -> None:
    wanted = get_args(kind)[0] if get_args(kind) else str
    wanted = get_origin(wanted) or wanted
    for element in value:
        if not _is(wanted, element):
            only = "objects" if wanted is dict else "strings"
            raise MalformedRequest(f"{name} holds {_said(element)}; only {only}", name)


def _check_bounds(one: BodyField, value: Any) -> None:
    if isinstance(value, str):
        longest = one.rules.get("maxLength", MAX_TEXT)
        if len(value) > longest:
            raise MalformedRequest(
                f"{one.name} has {len(value)} characters; at most {longest}", one.name
            )
    elif isinstance(value, (int, float)):
        least = one.rules.get("minimum", -(2**INT_BITS))
        most = one.rules.get("maximum", 2**INT_BITS - 1)
        if not least <= value <= most:
            raise MalformedRequest(f"{one.name} is {value}; from {least} to {most}", one.name)


def check_texts(value: Any, name: str) -> None:
    """No text may hold a NUL, which PostgreSQL cannot keep. Raises MalformedRequest."""
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, str):
            if "\0" in one:
                raise MalformedRequest(f"{name} holds a NUL character", name)
        elif isinstance(one, dict):
            waiting += [*one.keys(), *one.values()]
        elif isinstance(one, list):
            waiting += one


def _said(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, (list, dict)):
        return _NAMES[type(value)]
    text = str(value) if not isinstance(value, bool) else str(value).lower()
    return f"'{text[:60]}'" if isinstance(value, str) else text[:60]

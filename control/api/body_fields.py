"""Bodies of requests: `ApiBody` with the bounds of its fields, and our own words for a body
that is none. Pure.
"""

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from msgspec.inspect import (
    BoolType,
    DictType,
    EnumType,
    Field,
    FloatType,
    IntType,
    ListType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
)

from control.http_errors import MalformedRequest
from control.message_faults import fault_in

MAX_TEXT = 255
LARGEST = 2**63 - 1

Text = Annotated[str, Meta(max_length=MAX_TEXT)]
Natural = Annotated[int, Meta(ge=0, le=LARGEST)]
Positive = Annotated[int, Meta(ge=1, le=LARGEST)]
Number = Annotated[float, Meta(ge=-LARGEST - 1, le=LARGEST)]

_KINDS: dict[type[Type], tuple[type | tuple[type, ...], str]] = {
    StrType: (str, "a string"),
    IntType: (int, "a whole number"),
    FloatType: ((int, float), "a number"),
    BoolType: (bool, "true or false"),
    ListType: (list, "a list"),
    DictType: (dict, "an object"),
}


class ApiBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A JSON object in a request. `Meta` holds the meaning and the bounds of a field."""


def meaning(text: str, **more: Any) -> Meta:
    """To stand in a field's `Annotated`; `more` as msgspec's Meta takes it."""
    return Meta(description=text, **more)


B = TypeVar("B", bound=ApiBody)


def read_fields(kind: type[B], document: Any) -> B:
    """A `kind` from a decoded JSON object. Raises MalformedRequest naming the field and the
    remedy."""
    if not isinstance(document, dict):
        raise MalformedRequest(f"the body is {_shown(document)}; it must be an object")
    try:
        body = msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        raise _problem(kind, document, error) from None
    for name, value in document.items():
        check_texts(value, name)
    return body


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


def _problem(
    kind: type[ApiBody], document: dict[str, Any], error: msgspec.ValidationError
) -> MalformedRequest:
    """A field that is too many, or missing, or the one that msgspec refused."""
    fields = _fields(kind)
    for name in document:
        if name not in fields:
            there = ", ".join(fields)
            return MalformedRequest(
                f"there is no field '{name[:100]}'; there are {there}", name[:100]
            )
    for name, one in fields.items():
        if one.required and name not in document:
            return MalformedRequest(f"the field '{name}' is missing", name)
    name, *rest = map(str, fault_in(document, error).path)
    index = int(rest[0]) if rest and rest[0].isdigit() else 0
    text = _value_problem(_plain(fields[name].type), document[name], index)
    return MalformedRequest(f"{name} {text}", name)


def _value_problem(kind: Type, value: Any, index: int) -> str:
    """The end of a sentence; `index`: of the element that is at fault."""
    if isinstance(kind, EnumType):
        return f"is {_shown(value)}; give {', '.join(each.value for each in kind.cls)}"
    if isinstance(kind, ListType) and isinstance(value, list):
        only = "objects" if isinstance(kind.item_type, DictType) else "strings"
        return f"holds {_shown(value[index])}; only {only}"
    python, name = _KINDS[type(kind)]
    if not isinstance(value, python) or isinstance(value, bool):
        return f"is {_shown(value)}; it must be {name}"
    if isinstance(value, str) and isinstance(kind, StrType):
        return f"has {len(value)} characters; at most {kind.max_length}"
    assert isinstance(kind, IntType | FloatType)
    return f"is {value}; from {kind.ge} to {kind.le}"


def _fields(kind: type[ApiBody]) -> dict[str, Field]:
    found = msgspec.inspect.type_info(kind)
    assert isinstance(found, StructType)
    return {one.encode_name: one for one in found.fields}


def _plain(kind: Type) -> Type:
    """Without what is said about it, and without null."""
    while isinstance(kind, Metadata | UnionType):
        if isinstance(kind, Metadata):
            kind = kind.type
        else:
            kind = next(each for each in kind.types if not isinstance(each, NoneType))
    return kind


def _shown(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, (list, dict)):
        return "a list" if isinstance(value, list) else "an object"
    text = str(value) if not isinstance(value, bool) else str(value).lower()
    return f"'{text[:60]}'" if isinstance(value, str) else text[:60]

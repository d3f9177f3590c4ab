"""Bodies of requests: decoded into Structs, and refused in our words. Pure.

What nobody reads is refused by name: a field that is passed over in silence may have meant
something. A member that is null counts as absent, a float without a fraction as a whole number.
`Meta.extra` says what msgspec does not know:

- `wanted`: the end of the sentence about a wrong value, where its type does not tell.
- `absent`: the same where nothing is there.
- `entire`: what is wrong inside is said of the value as a whole.
- `tag`: `wanted` of the member that tells the objects of a union apart.
- `unsupported`: why another value is understood and not offered; `tag_unsupported` of the tag.
- `neutral`: the only flag that asks for nothing.
"""

import re
from collections.abc import Iterator
from functools import cache
from reprlib import Repr
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta
from msgspec.inspect import (
    BoolType,
    FloatType,
    IntType,
    ListType,
    LiteralType,
    Metadata,
    NoneType,
    StrType,
    StructType,
    Type,
    UnionType,
    type_info,
)

from server.rest.openai_errors import BadField

_SHOWN = 80
_brief = Repr()
_brief.maxlist = _brief.maxdict = _SHOWN // 2
_brief.maxlevel = 2  # a whole body written out would take seconds

_LEAVE_OUT = "not supported by this server; leave it out"
_NOT_OFFERED = {"unsupported": _LEAVE_OUT}
_PLACE = re.compile(r" - at `\$((?:\.\w+|\[\d+\])+)`\Z")


def wanted(text: str, **more: Any) -> Meta:
    """To stand in a field's `Annotated`: its value must be `text`."""
    return Meta(extra={"wanted": text, **more})


def not_offered(**extra: Any) -> Meta:
    """To stand in a field's `Annotated`: only values that ask for nothing are of its type."""
    return Meta(description="Not offered.", extra=_NOT_OFFERED | extra)


NotOffered = Annotated[None, not_offered()]
OnlyFalse = Annotated[bool, not_offered(neutral=False)] | None
OnlyTrue = Annotated[bool, not_offered(neutral=True)] | None


class OpenAIBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An object of a request."""


Body = TypeVar("Body", bound=OpenAIBody)


def read_body(kind: type[Body], document: dict[str, Any]) -> Body:
    """Raises BadField, which names the field by its whole path."""
    try:
        body = msgspec.convert(document, kind)
    except msgspec.ValidationError:
        body = _read_tolerantly(kind, document)
    refuse_flags(body)
    return body


def refuse_flags(body: OpenAIBody, path: str = "") -> None:
    """Raises BadField for a flag that asks for what is not offered; of `body` alone, without the
    objects in it."""
    for name, neutral in _neutral_flags(type(body)):
        value = getattr(body, name)
        if value is not None and value is not neutral:
            raise _unsupported(_joined(path, name), _LEAVE_OUT)


def refused(path: str, value: Any, must_be: str) -> BadField:
    """The error about a value that is not what it must be."""
    shown = repr(value[:_SHOWN]) if isinstance(value, str) else _brief.repr(value)
    shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
    return BadField(f"{path} is {shown}; it must be {must_be}", path)


def _read_tolerantly(kind: type[Body], document: dict[str, Any]) -> Body:
    info = _info(kind)
    document = _tolerant(info, document)
    try:
        return msgspec.convert(document, kind)
    except msgspec.ValidationError as error:
        place = _PLACE.search(str(error))
        steps = re.findall(r"\w+", place[1]) if place else []
        raise _problem(info, document, steps) from None


def _tolerant(kind: Type, value: Any) -> Any:
    """`value` as strict decoding takes it: without members that are null, and with whole numbers
    where a float has no fraction. What no type is said of stays as it is."""
    forms = [*_forms(kind)]
    if isinstance(value, dict):
        if not any(isinstance(one, StructType) for one in forms):
            return value
        kinds = {field.encode_name: field.type for field in _struct_of(kind, value).fields}
        return {
            name: _tolerant(kinds[name], member) if name in kinds else member
            for name, member in value.items()
            if member is not None
        }
    for one in forms:
        match one:
            case ListType() if isinstance(value, list):
                value = [_tolerant(one.item_type, element) for element in value]
            case IntType() if isinstance(value, float) and value.is_integer():
                value = int(value)
    return value


def _problem(kind: Type, value: Any, steps: list[str]) -> BadField:
    """The error about what lies behind `steps`: the names and indices of msgspec's path."""
    path = ""
    for step in steps:
        extra = _extra(kind)
        if extra.get("entire"):
            break
        if isinstance(value, list):
            found = next(one.item_type for one in _forms(kind) if isinstance(one, ListType))
            kind, value, path = found, value[int(step)], f"{path}[{step}]"
            continue
        fields = {field.encode_name: field.type for field in _struct_of(kind, value).fields}
        if step not in fields:
            return _tag_problem(extra, _joined(path, step), value.get(step))
        kind, value, path = fields[step], value[step], _joined(path, step)
    structs = [one for one in _forms(kind) if isinstance(one, StructType)]
    if structs and isinstance(value, dict):
        return _member_problem(_struct_of(kind, value), path, value)
    return _value_problem(kind, value, path)


def _tag_problem(extra: dict[str, Any], path: str, value: Any) -> BadField:
    if "tag_unsupported" in extra:
        return _unsupported(path, extra["tag_unsupported"], value)
    return refused(path, value, extra["tag"])


def _member_problem(struct: StructType, path: str, value: dict[str, Any]) -> BadField:
    """A member that is not there, or one that nobody reads."""
    if struct.tag_field is not None and struct.tag_field not in value:
        return _missing(_joined(path, struct.tag_field), struct)
    for field in struct.fields:
        if field.required and field.encode_name not in value:
            return _missing(_joined(path, field.encode_name), field.type)
    known = {field.encode_name for field in struct.fields} | {struct.tag_field}
    path = _joined(path, next(name for name in value if name not in known))
    return BadField(f"Unrecognized request argument supplied: {path[:_SHOWN]}", path)


def _missing(path: str, kind: Type) -> BadField:
    absent = _extra(kind).get("absent")
    if absent is not None:
        return refused(path, None, absent)
    return BadField(f"you must provide {path}", path)


def _value_problem(kind: Type, value: Any, path: str) -> BadField:
    extra = _extra(kind)
    if "unsupported" in extra:
        return _unsupported(path, extra["unsupported"], value)
    return refused(path, value, extra.get("wanted") or _wanted_by(next(_forms(kind))))


def _wanted_by(kind: Type) -> str:
    match kind:
        case BoolType():
            return "true or false"
        case StrType():
            return "a string"
        case IntType():
            return f"a whole number from {kind.ge} to {kind.le}"
        case FloatType():
            return f"a number from {kind.ge:g} to {kind.le:g}"
        case LiteralType():
            return " or ".join(f"'{one}'" for one in kind.values)
    return "an object"


def _unsupported(path: str, why: str, value: Any = None) -> BadField:
    what = f"{path} is {why}" if why is _LEAVE_OUT else f"{path} is {value!r:.80}; {why}"
    return BadField(what, path, "unsupported")


def _struct_of(kind: Type, value: Any) -> StructType:
    """The object of a union that `value` says it is; any of them where it says nothing."""
    structs = [one for one in _forms(kind) if isinstance(one, StructType)]
    return next(
        (one for one in structs if one.tag_field and value.get(one.tag_field) == one.tag),
        structs[0],
    )


def _forms(kind: Type) -> Iterator[Type]:
    """What a value may be, without null."""
    if isinstance(kind, Metadata):
        yield from _forms(kind.type)
    elif isinstance(kind, UnionType):
        for one in kind.types:
            yield from _forms(one)
    elif not isinstance(kind, NoneType):
        yield kind


def _extra(kind: Type) -> dict[str, Any]:
    """What is said about a type, and about the forms of a union."""
    if isinstance(kind, Metadata):
        return _extra(kind.type) | (kind.extra or {})
    found: dict[str, Any] = {}
    for one in kind.types if isinstance(kind, UnionType) else ():
        found |= _extra(one)
    return found


@cache
def _info(kind: type[OpenAIBody]) -> StructType:
    found = type_info(kind)
    assert isinstance(found, StructType)
    return found


@cache
def _neutral_flags(kind: type[OpenAIBody]) -> tuple[tuple[str, bool], ...]:
    extras = ((field.name, _extra(field.type)) for field in _info(kind).fields)
    return tuple((name, extra["neutral"]) for name, extra in extras if "neutral" in extra)


def _joined(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name

"""JSON Schemas of views, from their dataclasses. Pure."""

import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from enum import Enum
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

Schema = dict[str, Any]

_PLAIN: dict[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    datetime: {"type": "string", "format": "date-time"},
    object: {},
    Any: {},
    types.NoneType: {"type": "null"},
}


def view_schema(kind: type, into: dict[str, Schema]) -> Schema:
    """A reference to the view's schema, which is put `into` the components with all it holds."""
    name = kind.__name__.removesuffix("View")
    if name not in into:
        into[name] = {}
        found = _object(kind, into)
        into[name] = {**found, "required": list(found["properties"])}
    return {"$ref": f"#/components/schemas/{name}"}


def schema_of(kind: Any, into: dict[str, Schema]) -> Schema:
    """The schema of one field's type."""
    if isinstance(kind, type) and is_dataclass(kind):
        return view_schema(kind, into)
    if kind in _PLAIN:
        return dict(_PLAIN[kind])
    origin, inner = get_origin(kind), get_args(kind)
    if origin is Literal:
        return {"enum": list(inner)}
    if origin in (Union, types.UnionType):
        return {"anyOf": [schema_of(each, into) for each in inner]}
    if isinstance(kind, type) and issubclass(kind, Enum):
        return {"enum": [each.value for each in kind]}
    if origin in (list, tuple, Sequence):
        return {"type": "array", "items": schema_of(inner[0], into)}
    if origin in (dict, Mapping):
        return {"type": "object", "additionalProperties": schema_of(inner[1], into)}
    raise TypeError(f"This is a bug: no schema for {kind}")


def _object(kind: type, into: dict[str, Schema]) -> Schema:
    hints = get_type_hints(kind)
    properties = {one.name: schema_of(hints[one.name], into) for one in fields(kind)}
    return {"type": "object", "properties": properties}

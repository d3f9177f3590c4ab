"""Where a document is wrong that msgspec refuses, so that the refusal can be said in our own words.
Pure."""

import re
from functools import reduce
from typing import Any, NamedTuple

import msgspec

_PATH = re.compile(r" - at `\$([^`]*)`$")
_PART = re.compile(r"\.(\w+)|\[(\d+)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


class Fault(NamedTuple):
    """`path`: fields and indices that lead to `value`. `unknown`: the field that the Struct there
    does not have, "" for a value of another kind or out of its bounds."""

    path: tuple[str | int, ...]
    value: Any
    unknown: str


def fault_in(document: Any, error: msgspec.ValidationError) -> Fault:
    """What msgspec refused in `document`, which it was given to convert."""
    text, found = str(error), _PATH.search(str(error))
    path: tuple[str | int, ...] = ()
    if found:
        path = tuple(field or int(index) for field, index in _PART.findall(found[1]))
        text = text[: found.start()]
    try:
        value = reduce(lambda inside, part: inside[part], path, document)
    except (LookupError, TypeError):  # a field's name that looks like a path
        path, value = (), document
    unknown = _UNKNOWN.fullmatch(text)
    return Fault(path, value, unknown[1] if unknown else "")

"""Which bytes of an object a `Range` header asks for. Pure."""

import re
from typing import NamedTuple

_RANGE = re.compile(r"bytes=(?:([0-9]{1,19})-([0-9]{1,19})?|-([0-9]{1,19}))")


class ByteRange(NamedTuple):
    """From byte `start` up to, not including, `end`; None for the object's end."""

    start: int
    end: int | None


def range_of(header: str | None, size_bytes: int) -> ByteRange | None:
    """None for the whole object: no header, several ranges, or nothing that is a range.

    A range may lie behind the object's end; who opens it is told.
    """
    found = _RANGE.fullmatch(header.strip()) if header and size_bytes else None
    if found is None:
        return None
    first, last, final = found.groups()
    if final is not None:
        return ByteRange(max(0, size_bytes - int(final)), None)
    if last is None:
        return ByteRange(int(first), None)
    return ByteRange(int(first), int(last) + 1) if int(first) <= int(last) else None

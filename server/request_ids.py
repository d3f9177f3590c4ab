"""Ids of requests: what every response says of its request in the header `x-request-id`.

Ours are unique over servers and restarts: PREFIX is drawn when the process starts, and requests are
numbered. A client may send an id of its own in the same header, and then its response says that.
Within a gRPC stream, which has one such header, its k-th request is ID.k.
"""

import re
import secrets
from collections.abc import Iterable
from itertools import count

REQUEST_ID = "x-request-id"
NAME = REQUEST_ID.encode()
PREFIX = secrets.token_hex(6)

_OPENING = PREFIX.encode() + b"-"
_GOOD_ID = re.compile(r"[\x21-\x7e]{1,128}")
_OURS = re.compile(rf"{PREFIX}-([0-9a-f]{{1,16}})(?:\.([0-9]{{1,9}}))?")

next_number = count(1).__next__
"""The number of a new request. Any thread may call it."""


def id_text(number: int, part: int = 0) -> str:
    """`part`: which request of a stream, from 1; 0 for a request that has its call for itself."""
    return f"{PREFIX}-{number:x}.{part}" if part else f"{PREFIX}-{number:x}"


def id_bytes(number: int) -> bytes:
    return b"%b%x" % (_OPENING, number)


def number_in(text: str) -> tuple[int, int] | None:
    """The number and the part of an id that this process has made; None for any other text."""
    found = _OURS.fullmatch(text)
    return None if found is None else (int(found[1], 16), int(found[2] or 0))


def id_in(headers: Iterable[tuple[bytes, bytes]]) -> str:
    """The client's id, "" without one of 1 to 128 visible ASCII characters. Names in lower case."""
    for name, value in headers:
        if name == NAME:
            return good_id(value.decode("latin-1"))
    return ""


def good_id(text: str) -> str:
    """It, or "" for what is too long or would not survive in a header."""
    return text if _GOOD_ID.fullmatch(text) else ""

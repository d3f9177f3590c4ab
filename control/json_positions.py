"""Where in the text of a JSON document a value is, so that a mistake can be shown. Pure."""

import re
from contextlib import suppress
from json import JSONDecoder

_STEP = re.compile(r"\.(\w+)|\[(\d+)\]")
_BLANK = re.compile(r"[ \t\r\n]*")
_decoder = JSONDecoder()


def line_and_column(text: str, at: int) -> tuple[int, int]:
    """Both from 1."""
    return text.count("\n", 0, at) + 1, at - text.rfind("\n", 0, at)


def offset_of(text: str, path: str) -> int:
    """Where the value at `path` ("$.features[2].name") begins, or the last on the way to it that is
    there. The text is JSON."""
    at = _skip(text, 0)
    for name, number in _STEP.findall(path):
        with suppress(LookupError, ValueError):
            at = _element(text, at, int(number)) if number else _member(text, at, name)
            continue
        break
    return at


def _member(text: str, at: int, wanted: str) -> int:
    at = _skip(text, at + 1)
    while text[at] == '"':
        name, at = _decoder.raw_decode(text, at)
        at = _skip(text, _skip(text, at) + 1)
        if name == wanted:
            return at
        at = _after(text, at)
    raise LookupError(wanted)


def _element(text: str, at: int, wanted: int) -> int:
    at = _skip(text, at + 1)
    for _ in range(wanted):
        at = _after(text, at)
    return at


def _after(text: str, at: int) -> int:
    """Where what follows the value and its comma begins."""
    _, at = _decoder.raw_decode(text, at)
    at = _skip(text, at)
    return _skip(text, at + 1) if text[at] == "," else at


def _skip(text: str, at: int) -> int:
    found = _BLANK.match(text, at)
    return at if found is None else found.end()

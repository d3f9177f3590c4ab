"""Colours for people at a terminal; none into a pipe or a file, and none where NO_COLOR is set."""

import os
from typing import TextIO

_CODES = {
    "READY": "32",
    "LOADING": "33",
    "DRAINING": "33",
    "FAILED": "31",
    "FAILING": "31",
    "DEGRADED": "33",
    "UNAVAILABLE": "31",
    "WARNING": "33",
    "ERROR": "31",
    "CRITICAL": "31",
    "bold": "1",
    "faint": "2",
}


def has_colour(stream: TextIO) -> bool:
    """See https://no-color.org: any value but an empty one turns colours off."""
    if os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def painted(text: str, word: str, stream: TextIO) -> str:
    """The text in the colour of a state or level, where `stream` has colours."""
    code = _CODES.get(word)
    return f"\x1b[{code}m{text}\x1b[0m" if code and has_colour(stream) else text

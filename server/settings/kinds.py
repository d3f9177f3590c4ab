"""The kinds of value a setting can take: how each is read, and what is allowed in words."""

import math
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_network
from pathlib import Path
from typing import Any

CASE_MATTERS = "(?-i)"
"""Before a pattern that tells upper from lower case; Python has no such switch of its own."""


@dataclass(frozen=True, slots=True)
class ValueKind:
    """A kind of value. `placeholder` stands in help; `allowed` completes "'x' is not …".

    `read` takes the text of a flag or variable and raises ValueError when it is not allowed.
    `toml` are the TOML types that may stand for it. `choices` are the words allowed, if few.
    `separator` stands between the values of a repeatable setting in a variable. `shown` is what of
    a value may be shown to people, for kinds whose values hold a secret.
    """

    placeholder: str
    allowed: str
    read: Callable[[str], Any]
    toml: tuple[type, ...]
    choices: tuple[str, ...] = ()
    separator: str = ","
    shown: Callable[[str], str] = str


def setting(
    section: str, kind: ValueKind, default: Any, text: str, note: str = "", repeat: bool = False
) -> Any:
    """One row of the table of settings, as a dataclass field.

    `note` replaces the default in help where the default is computed. What may hold a secret stays
    out of the settings' repr.
    """
    row = {"section": section, "kind": kind, "text": text, "note": note, "repeat": repeat}
    return field(default=default, metadata=row, repr=kind.shown is str)


def whole(low: int, high: int, placeholder: str = "N") -> ValueKind:
    """A whole number from `low` to `high`, both included."""

    def read(text: str) -> int:
        number = int(text)
        _check_within(number, low, high)
        return number

    return ValueKind(placeholder, f"a whole number from {low} to {high}", read, (int,))


def seconds(low: float) -> ValueKind:
    """A finite duration of at least `low` seconds."""

    def read(text: str) -> float:
        number = float(text)
        _check_within(number, low, math.inf)
        return number

    return ValueKind("SECONDS", f"a number of seconds from {low:g} up", read, (int, float))


def fraction() -> ValueKind:
    """A number from 0 to 1, both included."""

    def read(text: str) -> float:
        number = float(text)
        _check_within(number, 0, 1)
        return number

    return ValueKind("SHARE", "a number from 0 to 1", read, (int, float))


def times() -> ValueKind:
    """A factor of at least 1, or 0 for none."""

    def read(text: str) -> float:
        number = float(text)
        if number:
            _check_within(number, 1, 1_000_000)
        return number

    return ValueKind("FACTOR", "0, or a number from 1 to 1000000", read, (int, float))


def choice(*words: str) -> ValueKind:
    """One of a few words, in capitals or not."""
    by_word = {word.lower(): word for word in words}

    def read(text: str) -> str:
        if text.lower() not in by_word:
            raise ValueError
        return by_word[text.lower()]

    return ValueKind("|".join(words), f"one of {', '.join(words)}", read, (str,), words)


def _read_boolean(text: str) -> bool:
    word = text.lower()
    if word in ("true", "1", "on", "yes"):
        return True
    if word in ("false", "0", "off", "no"):
        return False
    raise ValueError


def _read_text(text: str) -> str:
    if not text.strip():
        raise ValueError
    return text


def _read_regex(text: str) -> str:
    try:
        re.compile(_read_text(text).removeprefix(CASE_MATTERS))
    except re.error:
        raise ValueError from None
    return text


def _check_within(number: float, low: float, high: float) -> None:
    if not low <= number <= high or math.isinf(number):
        raise ValueError


def _read_cache(text: str) -> str:
    if re.fullmatch(r"local,size=[0-9]{1,18}", text) is None:
        raise ValueError
    return text


def _read_network(text: str) -> str:
    return str(ip_network(text.strip(), strict=False))


NETWORK = ValueKind(
    "NETWORK", "an address or a network such as 10.0.0.0/8 or fd00::/8", _read_network, (str,)
)
CACHE = ValueKind("local,size=BYTES", "of the form local,size=BYTES", _read_cache, (str,))
TEXT = ValueKind("TEXT", "a text that is not empty", _read_text, (str,))
NAME = ValueKind("NAME", "the name of a model", _read_text, (str,))
ADDRESS = ValueKind("ADDRESS", "an address or host name", _read_text, (str,))
FOLDER = ValueKind("FOLDER", "a path", lambda text: Path(_read_text(text)), (str,))
FILE = ValueKind("FILE", "a path", lambda text: Path(_read_text(text)), (str,))
REGEX = ValueKind("REGEX", "a regular expression", _read_regex, (str,))
PORT = whole(0, 65535, "PORT")
BOOLEAN = ValueKind("BOOL", "true or false", _read_boolean, (bool,), ("true", "false"))

"""The kinds of value a setting can take: how each is read, and what is allowed in words."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of value. `placeholder` stands in help; `allowed` completes "'x' is not …".

    `read` takes the text of a flag or variable and raises ValueError when it is not allowed.
    `toml` are the TOML types that may stand for it. `choices` are the words allowed, if few.
    """

    placeholder: str
    allowed: str
    read: Callable[[str], Any]
    toml: tuple[type, ...]
    choices: tuple[str, ...] = ()


def whole(low: int, high: int, placeholder: str = "N") -> Kind:
    """A whole number from `low` to `high`, both included."""

    def read(text: str) -> int:
        number = int(text)
        _check_within(number, low, high)
        return number

    return Kind(placeholder, f"a whole number from {low} to {high}", read, (int,))


def seconds(low: float) -> Kind:
    """A finite duration of at least `low` seconds."""

    def read(text: str) -> float:
        number = float(text)
        _check_within(number, low, math.inf)
        return number

    return Kind("SECONDS", f"a number of seconds from {low:g} up", read, (int, float))


def choice(*words: str) -> Kind:
    """One of a few words."""

    def read(text: str) -> str:
        if text not in words:
            raise ValueError
        return text

    return Kind("|".join(words), f"one of {', '.join(words)}", read, (str,), words)


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


def _check_within(number: float, low: float, high: float) -> None:
    if not low <= number <= high or math.isinf(number):
        raise ValueError


TEXT = Kind("TEXT", "a text that is not empty", _read_text, (str,))
NAME = Kind("NAME", "the name of a model", _read_text, (str,))
ADDRESS = Kind("ADDRESS", "an address or host name", _read_text, (str,))
FOLDER = Kind("FOLDER", "a path", lambda text: Path(_read_text(text)), (str,))
PORT = whole(0, 65535, "PORT")
BOOLEAN = Kind("BOOL", "true or false", _read_boolean, (bool,), ("true", "false"))

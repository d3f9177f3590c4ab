"""The fields of a checkpoint's JSON, their types checked, named when wrong."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from backends.llm.errors import BadCheckpoint

MAX_JSON_BYTES = 1 << 26
MAX_CONTAINERS = 1 << 18
MAX_VALUES = 1 << 21
"""The gateway reads such files, and nothing else runs while Python makes objects of one: 32 MiB of
empty lists took it 19 s on a busy machine. Some speech models list 65,536 tokens, each an object.
"""


class ConfigFields:
    """A JSON object and where it came from (`config.json`, or a field of it)."""

    def __init__(self, values: Mapping[str, Any], source: str) -> None:
        self.values = values
        self.source = source

    def refuse(self, name: str, wanted: str) -> BadCheckpoint:
        """The error for a field: its value, and what would work."""
        if name not in self.values:
            return BadCheckpoint(f"{self.source} lacks '{name}'; it must be {wanted}")
        value = repr(self.values[name])[:80]
        return BadCheckpoint(f"{self.source}: '{name}' is {value}; it must be {wanted}")

    def count(self, name: str, default: int | None = None, most: int = (1 << 31) - 1) -> int:
        """A positive whole number, `most` or less."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise self.refuse(name, "a positive whole number")
        if value > most:
            raise self.refuse(name, f"a positive whole number, at most {most}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        """A positive number."""
        value = self._get(name, default)
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1e12:
            raise self.refuse(name, "a positive number")
        return float(value)

    def optional_number(self, name: str) -> float | None:
        return None if self.values.get(name) is None else self.number(name)

    def flag(self, name: str, default: bool) -> bool:
        value = self._get(name, default)
        if not isinstance(value, bool):
            raise self.refuse(name, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self._get(name, default)
        if not isinstance(value, str):
            raise self.refuse(name, "a string")
        return value

    def numbers(self, name: str) -> tuple[float, ...]:
        value = self.values.get(name)
        if not isinstance(value, list) or not all(isinstance(one, int | float) for one in value):
            raise self.refuse(name, "a list of numbers")
        return tuple(float(one) for one in value)

    def texts(self, name: str, count: int) -> tuple[str, ...] | None:
        """A list of `count` strings, or None when the field is absent."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) != count or set(map(type, value)) != {str}:
            raise self.refuse(name, f"a list of {count} strings, one for each layer")
        return tuple(value)

    def whole_numbers(self, name: str) -> tuple[int, ...]:
        """Whole numbers: a list of them, a single one, or none."""
        value = self.values.get(name)
        listed = value if isinstance(value, list) else [] if value is None else [value]
        if not all(isinstance(one, int) for one in listed):
            raise self.refuse(name, "a whole number or a list of them")
        return tuple(listed)

    def within(self, name: str) -> "ConfigFields | None":
        """A nested object, or None when the field is absent."""
        value = self.values.get(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.refuse(name, "an object")
        return ConfigFields(value, f"{self.source}: '{name}'")

    def _get(self, name: str, default: Any) -> Any:
        value = self.values.get(name)
        return default if value is None else value


def read_fields(path: Path) -> ConfigFields:
    """The object in a JSON file. Raises BadCheckpoint naming the file."""
    try:
        if path.stat().st_size > MAX_JSON_BYTES:
            raise BadCheckpoint(f"{path.name} is larger than {MAX_JSON_BYTES >> 20} MiB")
        values = json.loads(_bounded(path))
    except FileNotFoundError:
        raise BadCheckpoint(f"there is no {path.name} beside the weights") from None
    except (OSError, ValueError, RecursionError) as error:
        raise BadCheckpoint(f"{path.name} cannot be read: {error}") from None
    if not isinstance(values, dict):
        raise BadCheckpoint(f"{path.name} holds no JSON object")
    return ConfigFields(values, path.name)


def _bounded(path: Path) -> bytes:
    content = path.read_bytes()
    if content.count(b"[") + content.count(b"{") > MAX_CONTAINERS:
        raise BadCheckpoint(f"{path.name} has more than {MAX_CONTAINERS} arrays and objects")
    if content.count(b",") > MAX_VALUES:
        raise BadCheckpoint(f"{path.name} has more than {MAX_VALUES} values")
    return content

"""The members of a request's body, their types checked; each is taken once. Pure.

What nobody took in the end is refused by name: a field that is passed over in silence may have
meant something.
"""

from collections.abc import Iterable, Mapping
from reprlib import Repr
from typing import Any

from server.rest.openai_errors import BadField

_SHOWN = 80
_brief = Repr()
_brief.maxlist = _brief.maxdict = _SHOWN // 2
_brief.maxlevel = 2  # a whole body written out would take seconds


class RequestFields:
    """An object of a body; null counts as absent. Its errors name the field by its whole path."""

    def __init__(self, values: Mapping[str, Any], path: str = "") -> None:
        self._values = {name: value for name, value in values.items() if value is not None}
        self._path = path

    def __contains__(self, name: str) -> bool:
        return name in self._values

    def path(self, name: str) -> str:
        """A member's name with those of the objects around it."""
        return f"{self._path}.{name}" if self._path else name

    def refused(self, name: str, value: Any, wanted: str) -> BadField:
        """The error about a member that was taken."""
        shown = repr(value[:_SHOWN]) if isinstance(value, str) else _brief.repr(value)
        shown = shown if len(shown) <= _SHOWN else shown[:_SHOWN] + "…"
        return BadField(f"{self.path(name)} is {shown}; it must be {wanted}", self.path(name))

    def take(self, name: str) -> Any:
        """Whatever it is; None if absent."""
        return self._values.pop(name, None)

    def needed(self, name: str) -> Any:
        if name not in self._values:
            path = self.path(name)
            raise BadField(f"you must provide {path}", path)
        return self.take(name)

    def text(self, name: str) -> str | None:
        value = self.take(name)
        if value is not None and not isinstance(value, str):
            raise self.refused(name, value, "a string")
        return value

    def flag(self, name: str, default: bool = False) -> bool:
        value = self.take(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            raise self.refused(name, value, "true or false")
        return value

    def whole(self, name: str, least: int, most: int) -> int | None:
        value = self.take(name)
        return None if value is None else self.whole_in(name, value, least, most)

    def whole_in(self, name: str, value: Any, least: int, most: int) -> int:
        """A value of, or in, the member `name`, which must be a whole number within bounds."""
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            raise self.refused(name, value, f"a whole number from {least} to {most}")
        return value

    def optional_number(self, name: str, least: float, most: float) -> float | None:
        value = self.take(name)
        return None if value is None else self.number_in(name, value, least, most)

    def number_in(self, name: str, value: Any, least: float, most: float) -> float:
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            raise self.refused(name, value, f"a number from {least:g} to {most:g}")
        return float(value)

    def object(self, name: str) -> "RequestFields | None":
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, dict):
            raise self.refused(name, value, "an object")
        return RequestFields(value, self.path(name))

    def objects(self, name: str, most: int) -> tuple[Mapping[str, Any], ...] | None:
        value = self.take(name)
        if value is None:
            return None
        if not isinstance(value, list) or len(value) > most:
            raise self.refused(name, value, f"a list of at most {most} objects")
        for number, one in enumerate(value):
            if not isinstance(one, dict):
                raise self.refused(f"{name}[{number}]", one, "an object")
        return tuple(value)

    def pass_over(self, names: Iterable[str]) -> None:
        """Take members that change nothing about the answer."""
        for name in names:
            self.take(name)

    def only(self, name: str, *neutral: Any) -> None:
        """Take a member that is not offered: it may stand there only with a value that asks for
        nothing."""
        value = self.take(name)
        if value is None or any(type(value) is type(one) and value == one for one in neutral):
            return
        path = self.path(name)
        raise BadField(f"{path} is not supported by this server; leave it out", path, "unsupported")

    def finish(self) -> None:
        """Nothing may be left."""
        for name in self._values:
            path = self.path(name)
            raise BadField(f"Unrecognized request argument supplied: {path[:_SHOWN]}", path)

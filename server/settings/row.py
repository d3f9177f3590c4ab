"""A row of the table of settings: how one setting is spelt, and how its values are shown."""

from dataclasses import dataclass
from typing import Any

from server.settings.kinds import ValueKind


@dataclass(frozen=True, slots=True)
class Setting:
    """A row of the table, as flags, variables, TOML and docs need it."""

    name: str
    section: str
    kind: ValueKind
    default: Any
    text: str
    note: str
    repeat: bool

    def shown(self, value: Any) -> str:
        """A value as it may be shown to people: without what is secret in it."""
        if isinstance(value, tuple):
            return ", ".join(map(self.shown, value))
        if value is None or value == "":
            return self.default_text
        return self.kind.shown(value if isinstance(value, str) else _spelt(value))

    @property
    def flag(self) -> str:
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        return "MODELYARD_" + self.name.upper()

    @property
    def default_text(self) -> str:
        """The default as a person would write it."""
        if self.note:
            return self.note
        if isinstance(self.default, tuple):
            return ", ".join(map(str, self.default))
        return _spelt(self.default)


def _spelt(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:g}"
    return str(value).lower() if isinstance(value, bool) else str(value)

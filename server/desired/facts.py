"""The settings of a server as its control process gets them: plain JSON, and back again."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from server.settings.table import TABLE, Settings


def facts(settings: Settings, server: str) -> dict[str, Any]:
    """Every setting as it is in force, where it came from, and the server's id; JSON-able."""
    values = {row.name: _plain(getattr(settings, row.name)) for row in TABLE}
    return {"server": server, "settings": values, "sources": dict(settings.sources)}


def settings_of(told: Mapping[str, Any]) -> Settings:
    """The same settings again. Raises SettingsError."""
    values = {name: _rich(value) for name, value in told["settings"].items()}
    return Settings(**values, sources=told["sources"])


def _plain(value: Any) -> Any:
    if isinstance(value, Path):
        return {"path": str(value.absolute())}
    return [_plain(one) for one in value] if isinstance(value, tuple) else value


def _rich(value: Any) -> Any:
    if isinstance(value, dict):
        return Path(value["path"])
    return tuple(_rich(one) for one in value) if isinstance(value, list) else value

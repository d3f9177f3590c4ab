"""Read the settings from flags, environment and TOML, in that order of precedence."""

import tomllib
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Any

from server.settings.row import Setting
from server.settings.table import TABLE, Settings, SettingsError

CONFIG_VARIABLE = "MODELYARD_CONFIG"
DEFAULT_FILE = "modelyard.toml"
_NO_SETTINGS = frozenset({CONFIG_VARIABLE, "MODELYARD_TOKEN", "MODELYARD_CRASH_AT"})
"""Variables that others read: the token of the command line, a test's crash."""

_BY_NAME = {row.name: row for row in TABLE}
_BY_VARIABLE = {row.variable: row for row in TABLE}


def read_settings(
    flags: Mapping[str, str | Sequence[str]],
    environment: Mapping[str, str],
    folder: Path,
    defaults: Mapping[str, str] = MappingProxyType({}),
) -> Settings:
    """Settings from parsed `flags` (field name → text; texts for a repeatable one), variables
    `MODELYARD_*`, and the TOML file of flag `config`, else `MODELYARD_CONFIG`, else
    `modelyard.toml` in `folder` if it exists. Lists in a variable are separated by commas.
    `defaults` stand in for the table's own, where nobody says anything.

    Raises SettingsError for an unknown key or variable and for a value that is not allowed.
    """
    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for found in (
        _from_toml(_toml_file(flags, environment, folder)),
        _from_environment(environment),
        _from_flags(flags),
    ):
        for row, source, value in found:
            values[row.name] = value
            sources[row.name] = source
    for name in defaults.keys() - values.keys():
        values[name] = _read(_BY_NAME[name], "default", defaults[name])
    return Settings(**values, sources=sources)


_Found = Iterable[tuple[Setting, str, Any]]


def _toml_file(
    flags: Mapping[str, str | Sequence[str]], environment: Mapping[str, str], folder: Path
) -> Path | None:
    written_path = flags.get("config") or environment.get(CONFIG_VARIABLE)
    if not written_path:
        implied = folder / DEFAULT_FILE
        return implied if implied.is_file() else None
    path = folder / str(written_path)
    if not path.is_file():
        source = "--config" if flags.get("config") else CONFIG_VARIABLE
        raise SettingsError(f"{source}: there is no file '{written_path}'")
    return path


def _from_toml(path: Path | None) -> _Found:
    if path is None:
        return
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, OSError) as error:
        raise SettingsError(f"{path}: cannot be read as TOML: {error}") from error
    for key, value in content.items():
        row = _BY_NAME.get(key)
        if row is None:
            raise SettingsError(f"{path}: there is no setting '{key}'{nearest(key, _BY_NAME)}")
        yield row, str(path), _read_toml(row, f"{path}: {key}", value)


def _read_toml(row: Setting, where: str, value: object) -> Any:
    if row.repeat:
        items = value if isinstance(value, list) else [value]
        return tuple(_read_toml_item(row, where, item) for item in items)
    return _read_toml_item(row, where, value)


def _read_toml_item(row: Setting, where: str, value: object) -> Any:
    if type(value) not in row.kind.toml:
        raise SettingsError(f"{where}: {value!r} is not {row.kind.allowed}")
    return _read(row, where, str(value))


def _from_environment(environment: Mapping[str, str]) -> _Found:
    for variable, text in sorted(environment.items()):
        if not variable.startswith("MODELYARD_") or variable in _NO_SETTINGS:
            continue
        row = _BY_VARIABLE.get(variable)
        if row is None:
            raise SettingsError(
                f"environment: there is no setting behind {variable}"
                f"{nearest(variable, [*_BY_VARIABLE, CONFIG_VARIABLE])}"
            )
        if row.repeat:
            parts = [part.strip() for part in text.split(row.kind.separator) if part.strip()]
            yield row, variable, tuple(_read(row, variable, part) for part in parts)
        else:
            yield row, variable, _read(row, variable, text)


def _from_flags(flags: Mapping[str, str | Sequence[str]]) -> _Found:
    for name, given in flags.items():
        if name == "config":
            continue
        row = _BY_NAME[name]
        if isinstance(given, str):
            yield row, row.flag, _read(row, row.flag, given)
        else:
            yield row, row.flag, tuple(_read(row, row.flag, text) for text in given)


def _read(row: Setting, where: str, text: str) -> Any:
    try:
        return row.kind.read(text)
    except ValueError:
        hint = nearest(text, row.kind.choices)
        shown = row.kind.shown(text)
        raise SettingsError(f"{where}: '{shown}' is not {row.kind.allowed}{hint}") from None


def nearest(name: str, names: Iterable[str]) -> str:
    """ "; did you mean 'x'?" for the known name nearest to `name`, or nothing."""
    close = get_close_matches(name, list(names), n=1)
    return f"; did you mean '{close[0]}'?" if close else ""

"""Triton's logging extension: the log's settings by their wire names, and changes of them.

`server.rest.endpoints.trace` and `server.grpc.trace` call `read` and `change`; `server.logs.lines`
does the rest.
"""

from collections.abc import Callable, Mapping
from typing import Any

from server.errors import InvalidRequest, Unsupported
from server.logs.lines import LOG

DEFAULT, ISO8601 = "default", "ISO8601"
"""The formats on the wire. "default" is what the server was started with; where that is ISO8601
itself, it is Triton's other form."""

VERBOSE_MOST = 2**31 - 1


def read() -> dict[str, str | bool | int]:
    """The settings in force, in Triton's order."""
    now = LOG.settings
    return {
        "log_file": now.file,
        "log_info": now.info,
        "log_warning": now.warning,
        "log_error": now.error,
        "log_verbose_level": now.verbose_level,
        "log_format": ISO8601 if now.form == ISO8601 else DEFAULT,
    }


def change(given: Mapping[str, Any]) -> None:
    """Apply a change; None leaves a setting as it is. All of it is checked first.

    Raises Unsupported for the file; InvalidRequest for an unknown name or a wrong value.
    """
    changes: dict[str, Any] = {}
    for name, value in given.items():
        if value is None and (name in _FIELDS or name == "log_file"):
            continue
        if name == "log_file":
            raise Unsupported("log file location can not be updated through network protocol")
        if name not in _FIELDS:
            raise InvalidRequest(f"'{name}' is not a log setting: {', '.join(_FIELDS)}")
        field, take = _FIELDS[name]
        changes[field] = take(name, value)
    if changes:
        LOG.change(**changes)


def _boolean(name: str, value: Any) -> bool:
    if type(value) is not bool:
        raise InvalidRequest(f"expect boolean for '{name}'")
    return value


def _level(name: str, value: Any) -> int:
    if type(value) is not int or not 0 <= value <= VERBOSE_MOST:
        raise InvalidRequest(f"expect int32 for '{name}'")
    return value


def _form(name: str, value: Any) -> str:
    if type(value) is not str:
        raise InvalidRequest(f"expect string for '{name}'")
    if value == ISO8601:
        return ISO8601
    if value != DEFAULT:
        raise InvalidRequest(
            f"invalid argument for {name}, got: {value}; expecting {DEFAULT} or {ISO8601}"
        )
    return "triton" if LOG.started.form == ISO8601 else LOG.started.form


_FIELDS: dict[str, tuple[str, Callable[[str, Any], Any]]] = {
    "log_info": ("info", _boolean),
    "log_warning": ("warning", _boolean),
    "log_error": ("error", _boolean),
    "log_verbose_level": ("verbose_level", _level),
    "log_format": ("form", _form),
}

"""The `parameters` of a JSON request: of types that can travel, Triton's own of the right one.

Called by `server.codec.json_infer` and `server.codec.json_generate`; `server.admit` gives them
their meaning.
"""

from collections.abc import Callable, Mapping
from typing import Any

from schedulers.request import NO_PARAMETERS
from server.codec.json_text import unparsable
from server.errors import InvalidRequest

_LEAST, _MOST = -(1 << 63), (1 << 64) - 1


def read_parameters(parameters: Any) -> Mapping[str, Any]:
    """A request's parameters. Raises InvalidRequest, and Internal (Triton answers 500) when one
    that Triton gives a meaning has another type."""
    if not parameters:
        return NO_PARAMETERS
    checked = check_parameters(parameters)
    for key in _KINDS.keys() & checked:
        expected, fits = _KINDS[key]
        if not fits(checked[key]):
            raise unparsable(key, checked[key], expected)
    return checked


def check_parameters(parameters: Any) -> dict[str, Any]:
    """An object of booleans, integers of 64 bits, numbers and strings, no key reserved.

    Raises InvalidRequest, Internal.
    """
    if type(parameters) is not dict:
        raise unparsable("parameters", parameters, "object")
    for key, value in parameters.items():
        if key.startswith("triton_"):
            raise InvalidRequest(
                "parameter keys starting with 'triton_' are reserved for Triton usage "
                "and should not be specified."
            )
        if not isinstance(value, bool | int | float | str):
            raise InvalidRequest(
                f"parameter '{key}' has invalid type. It should be either 'int', 'bool', or "
                "'string'."
            )
        if isinstance(value, int) and not _LEAST <= value <= _MOST:
            raise InvalidRequest(f"parameter '{key}' does not fit 64 bits: {value}")
    return parameters


def _is_whole(value: object) -> bool:
    return type(value) is int and value < 1 << 63


def _is_natural(value: object) -> bool:
    return type(value) is int and value >= 0


_KINDS: dict[str, tuple[str, Callable[[object], bool]]] = {
    "sequence_id": ("string", lambda value: type(value) is str or _is_natural(value)),
    "sequence_start": ("boolean", lambda value: type(value) is bool),
    "sequence_end": ("boolean", lambda value: type(value) is bool),
    "priority": ("unsigned-integer", _is_natural),
    "timeout": ("signed-integer", _is_whole),
    "binary_data_output": ("boolean", lambda value: type(value) is bool),
}
"""Parameters with a meaning of their own: what each must be, in Triton's words."""

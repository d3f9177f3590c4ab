"""What a load request may bring with it: a config, or a config and the whole of a model's folder.

Pure. Front ends decode it (`of_json`, `of_message`) and hand it to `server.fleet`, which has
the model read with it (`server.fleet.override_files`).
"""

from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tritonclient.grpc import service_pb2 as pb

from server.codec.json_text import unparsable
from server.errors import InvalidRequest

CONFIG, FILE = "config", "file:"
_SLICE = 4 << 18


@dataclass(frozen=True, slots=True)
class Override:
    """`config`: a ModelConfig as JSON, "" for none. `files`: path in the model's folder → content;
    if there are any, they replace that folder."""

    config: str = ""
    files: Mapping[str, bytes] = field(default_factory=dict)


def of_json(parameters: Mapping[str, Any]) -> Override | None:
    """The override in the `parameters` of a REST load request, whose files are base64; or None.

    Raises InvalidRequest for a parameter that is not known or not readable, Internal (as Triton)
    for one that is not text.
    """
    for name, value in parameters.items():
        _check_known(name)
        if not isinstance(value, str):
            raise unparsable(name, value, "string")
    if not parameters:
        return None
    files = {_path(name): _decoded(name, parameters[name]) for name in parameters if name != CONFIG}
    return Override(parameters.get(CONFIG, ""), files)


def of_message(parameters: Mapping[str, pb.ModelRepositoryParameter]) -> Override | None:
    """The override in the parameters of a gRPC load request, or None. Raises InvalidRequest."""
    for name, value in parameters.items():
        _check_known(name)
        parameter_kind = "string_param" if name == CONFIG else "bytes_param"
        if value.WhichOneof("parameter_choice") != parameter_kind:
            raise InvalidRequest(
                f"invalid value type for load parameter '{name}', expected {parameter_kind}."
            )
    if not parameters:
        return None
    files = {_path(name): parameters[name].bytes_param for name in parameters if name != CONFIG}
    config = parameters[CONFIG].string_param if CONFIG in parameters else ""
    return Override(config, files)


def _check_known(name: str) -> None:
    if name != CONFIG and not name.startswith(FILE):
        raise InvalidRequest(
            f"unrecognized load parameter '{name}'. Known are '{CONFIG}' and '{FILE}<path>'"
        )


def _path(name: str) -> str:
    """With a slash before it or not, as Triton joins it to the model's folder."""
    return name.removeprefix(FILE).removeprefix("/")


def _decoded(name: str, text: str) -> bytes:
    """In slices, because one call holds the interpreter for as long as it takes."""
    slices = [text[start : start + _SLICE] for start in range(0, len(text), _SLICE)]
    try:
        if any("=" in one for one in slices[:-1]):
            raise ValueError("padding before the end")
        return b"".join(b64decode(one, validate=True) for one in slices)
    except ValueError as error:
        raise InvalidRequest(f"load parameter '{name}' is not base64: {error}") from error

"""The inputs and outputs that a python model's code names, read without running it. Pure."""

import ast
from typing import Any

from google.protobuf.json_format import ParseDict, ParseError
from tritonclient.grpc import model_config_pb2 as pb

from repository.model import ModelConfig


def add_tensors(config: ModelConfig, source: bytes) -> bool:
    """Add to `config` what the code names; True if types and dims had to be guessed.

    `add_input({...})` and `add_output({...})` of auto_complete_config say all; elsewhere a name is
    what `get_input_tensor_by_name` and `pb_utils.Tensor` are given as text.
    """
    calls = [one for one in ast.walk(ast.parse(source)) if isinstance(one, ast.Call)]
    for call in calls:
        if _name(call) in ("add_input", "add_output") and call.args:
            _add_described(config, _name(call).removeprefix("add_"), call.args[0])
    guessed = False
    for call in calls:
        kind, place = _PLACES.get(_name(call), ("", 0))
        given = call.args[place] if kind and len(call.args) > place else None
        if isinstance(given, ast.Constant):
            guessed |= _add_guessed(config, kind, given.value)
    return guessed


_PLACES = {"get_input_tensor_by_name": ("input", 1), "Tensor": ("output", 0)}
"""Function → which tensors its call names, and in which argument."""


def _name(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def _add_described(config: ModelConfig, kind: str, node: ast.expr) -> None:
    try:
        value = ast.literal_eval(node)
        tensor = pb.ModelInput() if kind == "input" else pb.ModelOutput()
        ParseDict(value, tensor)
    except (ValueError, TypeError, ParseError, AttributeError):
        return
    getattr(config, kind).append(tensor)


def _add_guessed(config: ModelConfig, kind: str, name: Any) -> bool:
    tensors = getattr(config, kind)
    if not isinstance(name, str) or any(one.name == name for one in tensors):
        return False
    tensors.add(name=name, data_type=pb.TYPE_FP32, dims=[-1])
    return True

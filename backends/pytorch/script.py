"""What TorchScript (model.pt) says of itself: the arguments of `forward`, and nothing else.

So its config must be written; the refusal holds a config ready to paste.
"""

import ast
import pickletools
import re
from typing import NamedTuple

from backends.artefact import input_names, refuse
from repository.model import ModelConfig, ModelVersion


class Forward(NamedTuple):
    """TorchScript's `forward`: tensor arguments, those without a default, number of outputs
    (0 when only running it would tell)."""

    arguments: tuple[str, ...]
    required: tuple[str, ...]
    outputs: int


def root_class(pickled: bytes) -> tuple[str, str]:
    """(module, name) of the first class the pickle names: the root module's. Nothing is unpickled.

    Raises ValueError when it names none.
    """
    for code, argument, _ in pickletools.genops(pickled):
        if code.name == "GLOBAL":
            module, _, name = str(argument).partition(" ")
            return module, name
    raise ValueError("its data.pkl names no class")


def read_forward(version: ModelVersion, file: str, name: str, source: str) -> Forward:
    """The signature of `forward` of the class `name`, from TorchScript source."""
    body = re.split(rf"^class {re.escape(name)}\(Module\):$", source, flags=re.M)[-1]
    body = re.split(r"^class ", body, flags=re.M)[0]
    found = re.search(r"^  def (forward\(.*?\) -> .+?):\n", body, re.M | re.S)
    if found is None:
        refuse(version, f"{file} has no method 'forward'")
    return _parse_forward(version, file, found[1])


def _parse_forward(version: ModelVersion, file: str, signature: str) -> Forward:
    function = ast.parse(f"def {signature}: pass").body[0]
    assert isinstance(function, ast.FunctionDef)
    arguments = function.args.args[1:]
    required = arguments[: len(arguments) - len(function.args.defaults)]
    for argument in required:
        if _annotation(argument.annotation) != "Tensor":
            refuse(
                version,
                f"forward's argument '{argument.arg}' of {file} is a "
                f"{_annotation(argument.annotation)}; only tensors can be sent",
            )
    tensors = tuple(item.arg for item in arguments if "Tensor" in _annotation(item.annotation))
    returned = _annotation(function.returns)
    outputs = 1 if returned == "Tensor" else 0
    if re.fullmatch(r"Tuple\[Tensor(, Tensor)*\]", returned):
        outputs = returned.count("Tensor")
    return Forward(tensors, tuple(item.arg for item in required), outputs)


def _annotation(node: ast.expr | None) -> str:
    return ast.unparse(node) if node is not None else "Tensor"


def complete_script(version: ModelVersion, file: str, forward: Forward) -> ModelConfig:
    """The config as written, held against `forward`; LoadFailed with one to paste if it lacks
    types or dims."""
    config = ModelConfig()
    config.CopyFrom(version.config)
    config.backend = "pytorch"
    config.ClearField("platform")
    complete = all(t.data_type and t.dims for t in (*config.input, *config.output))
    if not complete or not config.input or not config.output:
        refuse(
            version,
            f"{file} is TorchScript, which records neither types nor shapes; write both in "
            f"config.pbtxt, for example: {_stanza(forward)}",
        )
    most = len(forward.arguments)
    given = len(input_names(config))
    if not len(forward.required) <= given <= most:
        refuse(
            version,
            f"config.pbtxt lists {given} inputs, but forward of {file} takes {most}: "
            + ", ".join(forward.arguments),
        )
    if forward.outputs and len(config.output) > forward.outputs:
        refuse(
            version,
            f"config.pbtxt lists {len(config.output)} outputs, but forward of {file} returns "
            f"{forward.outputs}",
        )
    return config


def _stanza(forward: Forward) -> str:
    row = '{{ name: "{}" data_type: TYPE_FP32 dims: [ -1 ] }}'
    outputs = [f"OUTPUT__{index}" for index in range(forward.outputs or 1)]
    inputs = forward.required or forward.arguments
    return " ".join(
        (
            "max_batch_size: 8",
            "input [",
            ", ".join(row.format(name) for name in inputs),
            "]",
            "output [",
            ", ".join(row.format(name) for name in outputs),
            "]",
        )
    )

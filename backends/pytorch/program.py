"""What an exported program (model.pt2) says of itself: names, types, shapes, batch bounds."""

import json
import re
from collections.abc import Sequence
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import Artefact, TensorDescription, refuse
from repository.model import ModelVersion

# torch._export.serde.schema.ScalarType; the numbers are part of the file format.
SCALAR_TYPES: dict[int, int] = {
    1: pb.TYPE_UINT8,
    2: pb.TYPE_INT8,
    3: pb.TYPE_INT16,
    4: pb.TYPE_INT32,
    5: pb.TYPE_INT64,
    6: pb.TYPE_FP16,
    7: pb.TYPE_FP32,
    8: pb.TYPE_FP64,
    12: pb.TYPE_BOOL,
    13: pb.TYPE_BF16,
    28: pb.TYPE_UINT16,
    34: pb.TYPE_UINT32,
    35: pb.TYPE_UINT64,
}

_SYMBOL = re.compile(r"Symbol\('(\w+)'[^()]*\)")
_SMALLEST_TRACED = 2
"""torch.export writes 2 as the lower bound of every free size; one row works all the same."""


def read_program(version: ModelVersion, file: str, text: bytes) -> Artefact:
    """Inputs, outputs and batch bounds of an exported program, from its JSON."""
    try:
        program = json.loads(text)
        module = program["graph_module"]
        values = module["graph"]["tensor_values"]
        inputs = _user_values(module["signature"]["input_specs"], "user_input")
        outputs = _user_values(module["signature"]["output_specs"], "user_output")
        names = _output_names(module["module_call_graph"][0]["signature"]["out_spec"], len(outputs))
        described = tuple(_describe(values, arg, "") for arg in inputs)
        answers = tuple(
            _describe(values, arg, name) for arg, name in zip(outputs, names, strict=True)
        )
        most, unbatchable = _batch_bounds(program, values, (*inputs, *outputs), file)
    except (KeyError, TypeError, ValueError, IndexError, RecursionError) as error:
        refuse(
            version,
            f"{file} is no program this server reads ({type(error).__name__}: {error}); "
            "export it again with torch.export.save of a current torch",
        )
    return Artefact(file, described, answers, most, unbatchable)


def _user_values(specs: Sequence[Any], kind: str) -> list[dict[str, Any]]:
    return [spec[kind]["arg"] for spec in specs if kind in spec]


def _output_names(out_spec: str, count: int) -> list[str]:
    """The keys when `forward` returns a flat dict of tensors, else OUTPUT__0, OUTPUT__1, …"""
    tree = json.loads(out_spec)[1]
    if tree["type"] == "builtins.dict":
        keys: list[str] = json.loads(tree["context"])
        if len(keys) == count and all(isinstance(key, str) for key in keys):
            return keys
    return [f"OUTPUT__{index}" for index in range(count)]


def _describe(values: dict[str, Any], arg: dict[str, Any], name: str) -> TensorDescription:
    if "as_tensor" not in arg:
        kind = next(iter(arg)).removeprefix("as_")
        problem = f"is a constant ({kind}), not a tensor; export the model with it bound inside"
        return TensorDescription(name or f"<{kind}>", pb.TYPE_INVALID, None, problem=problem)
    key = arg["as_tensor"]["name"]
    value = values[key]
    data_type = SCALAR_TYPES.get(value["dtype"], pb.TYPE_INVALID)
    shape = tuple(size.get("as_int", -1) for size in value["sizes"])
    problem = "" if data_type else f"has torch's scalar type {value['dtype']}, which is not served"
    return TensorDescription(name or key, data_type, shape, problem=problem)


def _batch_bounds(
    program: dict[str, Any], values: dict[str, Any], args: Sequence[dict[str, Any]], file: str
) -> tuple[int, str]:
    """(most rows or 0, why it cannot batch or ""): all first sizes must be one free symbol."""
    sizes = [values[arg["as_tensor"]["name"]]["sizes"] for arg in args if "as_tensor" in arg]
    firsts = {size[0].get("as_expr", {}).get("expr_str", "") if size else "" for size in sizes}
    if len(firsts) != 1 or "" in firsts:
        if "" in firsts:
            return 0, ""  # a fixed or missing first dimension: the shapes say so by themselves
        return 0, f"the first dimensions of {file} differ: {', '.join(sorted(firsts))}"
    symbol = _SYMBOL.fullmatch(firsts.pop())
    if symbol is None:
        return 0, f"the first dimension of {file} is an expression"
    bounds = program["range_constraints"].get(symbol[1], {})
    least = bounds.get("min_val") or 0
    if least > _SMALLEST_TRACED:
        return 0, f"{file} was exported for at least {least} rows"
    return bounds.get("max_val") or 0, ""

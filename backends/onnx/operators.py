"""What of an ONNX graph the installed onnxruntime does not know: its opset, IR version, operators.

Found from the graph and onnxruntime's own registry, before the model is loaded.
"""

from collections.abc import Callable, Iterable, Iterator
from functools import cache

import onnx
import onnxruntime as ort
from onnx import TensorProto, helper
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

_OLDEST = 1
_MOST_NAMED = 5
_OF_ONNX = ("", "ai.onnx")


def unsupported(model: onnx.ModelProto, brings_operators: bool) -> str:
    """Why this onnxruntime cannot load the graph, with what would work; "" where it may.

    `brings_operators`: the model's config names libraries of operators, which may define those of
    any domain but ONNX's own.
    """
    here = f"the installed onnxruntime {ort.__version__}"
    most = newest_ir_version()
    if model.ir_version > most:
        return (
            f"has IR version {model.ir_version}, and {here} reads up to {most}; set the model's "
            "ir_version lower and save it again, or install a newer onnxruntime"
        )
    opsets = {_domain(one.domain): one.version for one in model.opset_import}
    opset, newest = opsets.get("", _OLDEST), newest_opset()
    if opset > newest:
        return (
            f"has opset {opset}, and {here} supports up to {newest}; export it with opset "
            f"{newest} (torch.onnx.export(..., opset_version={newest})), or install a newer "
            "onnxruntime"
        )
    missing = list(dict.fromkeys(_missing(model, opsets, brings_operators)))
    if not missing:
        return ""
    names = ", ".join(missing[:_MOST_NAMED])
    more = f" and {len(missing) - _MOST_NAMED} more" if len(missing) > _MOST_NAMED else ""
    return (
        f"uses operators that {here} does not have in opset {opset}: {names}{more}; export it with "
        "standard operators, or name the library that defines them in config.pbtxt: "
        'model_operations { op_library_filename: "FILE.so" }'
    )


@cache
def newest_opset() -> int:
    """The newest opset of ONNX's own operators that onnxruntime loads."""
    schemas = ort_state.get_all_operator_schema()
    newest = max(one.since_version for one in schemas if not _domain(one.domain))
    return _newest(range(newest, _OLDEST, -1), lambda one: _probe(opset=one))


@cache
def newest_ir_version() -> int:
    """The newest version of the file format that onnxruntime loads."""
    newest = max(onnx.IR_VERSION, 20)
    return _newest(range(newest, _OLDEST, -1), lambda one: _probe(ir_version=one))


def _newest(candidates: Iterable[int], model: Callable[[int], bytes]) -> int:
    return next((one for one in candidates if _loads(model(one))), _OLDEST)


def _probe(opset: int = 13, ir_version: int = 7) -> bytes:
    tensors = (helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy")
    value, result = tensors
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", [value], [result])
    model = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=ir_version
    )
    content: bytes = model.SerializeToString()
    return content


def _loads(content: bytes) -> bool:
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    try:
        ort.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    except Exception:  # noqa: BLE001  onnxruntime's errors have no base of their own
        return False
    return True


def _missing(
    model: onnx.ModelProto, opsets: dict[str, int], brings_operators: bool
) -> Iterator[str]:
    schemas = _schemas()
    own = {(_domain(one.domain), one.name) for one in model.functions}
    domains = {domain for domain, _ in schemas}
    for node, versions in _nodes(model, opsets):
        key = _domain(node.domain), node.op_type
        if key in own or (brings_operators and key[0] not in domains):
            continue
        if schemas.get(key, 1 << 31) > versions.get(key[0], 1 << 30):
            yield f"{key[0] or 'ai.onnx'}:{key[1]}"


def _nodes(
    model: onnx.ModelProto, opsets: dict[str, int]
) -> Iterator[tuple[onnx.NodeProto, dict[str, int]]]:
    """Every node of the graph, its functions and their subgraphs, with the opsets it is under."""
    waiting = [(node, opsets) for node in model.graph.node]
    for function in model.functions:
        its = opsets | {_domain(one.domain): one.version for one in function.opset_import}
        waiting += [(node, its) for node in function.node]
    while waiting:
        node, versions = waiting.pop()
        yield node, versions
        for attribute in node.attribute:
            for graph in (attribute.g, *attribute.graphs):
                waiting += [(inner, versions) for inner in graph.node]


@cache
def _schemas() -> dict[tuple[str, str], int]:
    """Domain and name of each operator that onnxruntime knows → the opset that it is in first."""
    found: dict[tuple[str, str], int] = {}
    for schema in ort_state.get_all_operator_schema():
        key = _domain(schema.domain), schema.name
        found[key] = min(schema.since_version, found.get(key, 1 << 30))
    return found


def _domain(name: str) -> str:
    return "" if name in _OF_ONNX else name

"""Sequence models that tests serve, and clients that send sequences to them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from examples.running_sum.build import build as build_running_sum
from support.server import Server

Key = int | str

_KINDS = {"INT32": TensorProto.INT32, "UINT64": TensorProto.UINT64, "FP32": TensorProto.FLOAT}


def write_running_sum(
    repository: Path, name: str, batching: str, rows: int = 8, extra: str = ""
) -> Path:
    """INPUT INT32 [1] → OUTPUT, the sum of the sequence so far; `batching` is inside of
    `sequence_batching`. Returns the model's folder."""
    version = repository / name / "1"
    version.mkdir(parents=True, exist_ok=True)
    build_running_sum(1, version)
    (repository / name / "config.pbtxt").write_text(
        f"""
        name: "{name}" backend: "onnxruntime" max_batch_size: {rows}
        input {{ name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }}
        output {{ name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }}
        sequence_batching {{ {batching}
          state {{ input_name: "SUM_IN" output_name: "SUM_OUT" data_type: TYPE_INT32 dims: [ 1 ] }}
        }} {extra}
        """
    )
    return repository / name


def flag_control(name: str, kind: str, values: str = "int32_false_true: [ 0, 1 ]") -> str:
    """A control input of a config."""
    inner = f"control {{ kind: CONTROL_SEQUENCE_{kind} {values} }}"
    return f'control_input {{ name: "{name}" {inner} }}'


def write_simple_sequence(repository: Path) -> None:
    """Triton's `simple_sequence`: OUTPUT = INPUT, plus 1 for the first request of a sequence."""
    nodes = [
        helper.make_node("Mul", ["START", "READY"], ["begins"]),
        helper.make_node("Add", ["INPUT", "begins"], ["OUTPUT"]),
    ]
    controls = [flag_control("START", "START"), flag_control("READY", "READY")]
    _write(
        repository / "simple_sequence",
        nodes,
        {"INPUT": "INT32", "START": "INT32", "READY": "INT32"},
        f"direct {{ }} max_sequence_idle_microseconds: 5000000 {' '.join(controls)}",
    )


def write_simple_dyna_sequence(repository: Path) -> None:
    """Triton's `simple_dyna_sequence`: as `simple_sequence`, and the last response of a sequence
    has its correlation id added."""
    nodes = [
        helper.make_node("Cast", ["CORRID"], ["key"], to=TensorProto.INT32),
        helper.make_node("Mul", ["key", "END"], ["ends"]),
        helper.make_node("Add", ["INPUT", "START"], ["begun"]),
        helper.make_node("Mul", ["begun", "READY"], ["ready"]),
        helper.make_node("Add", ["ready", "ends"], ["OUTPUT"]),
    ]
    controls = [flag_control(kind, kind) for kind in ("START", "READY", "END")]
    controls.append(flag_control("CORRID", "CORRID", "data_type: TYPE_UINT64"))
    _write(
        repository / "simple_dyna_sequence",
        nodes,
        {"INPUT": "INT32", "START": "INT32", "READY": "INT32", "END": "INT32", "CORRID": "UINT64"},
        "oldest { max_candidate_sequences: 4 preferred_batch_size: [ 4, 8 ] "
        "max_queue_delay_microseconds: 100 } max_sequence_idle_microseconds: 5000000 "
        + " ".join(controls),
    )


def _write(folder: Path, nodes: Sequence[Any], inputs: dict[str, str], batching: str) -> None:
    (folder / "1").mkdir(parents=True)

    def tensor(name: str, kind: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, _KINDS[kind], ["batch", 1])

    graph = helper.make_graph(
        list(nodes),
        folder.name,
        [tensor(name, kind) for name, kind in inputs.items()],
        [tensor("OUTPUT", "INT32")],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "1" / "model.onnx")
    (folder / "config.pbtxt").write_text(
        f"""
        name: "{folder.name}" backend: "onnxruntime" max_batch_size: 8
        input {{ name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }}
        output {{ name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }}
        sequence_batching {{ {batching} }}
        """
    )


def infer(
    client: Any,
    model: str,
    value: int,
    key: Key,
    *,
    start: bool = False,
    end: bool = False,
    shape: Sequence[int] = (1, 1),
    **more: Any,
) -> int:
    """One request of a sequence by a `tritonclient` of either protocol; its OUTPUT."""
    given = input_of(client, value, shape)
    result = client.infer(
        model, [given], sequence_id=key, sequence_start=start, sequence_end=end, **more
    )
    return int(result.as_numpy("OUTPUT").ravel()[0])


def input_of(client: Any, value: int, shape: Sequence[int] = (1, 1)) -> Any:
    """INPUT, for the protocol of `client`."""
    if type(client).__module__.startswith("tritonclient.http"):
        from tritonclient.http import InferInput
    else:
        from tritonclient.grpc import InferInput
    given = InferInput("INPUT", list(shape), "INT32")
    given.set_data_from_numpy(np.full(shape, value, np.int32))
    return given


def rest(server: Server, model: str, value: int, **parameters: object) -> tuple[int, Any]:
    """Status and body of one request over REST, as JSON."""
    import json

    body = {
        "parameters": parameters,
        "inputs": [{"name": "INPUT", "shape": [1, 1], "datatype": "INT32", "data": [value]}],
    }
    status, answer = server.post(f"/v2/models/{model}/infer", body)
    return status, json.loads(answer)

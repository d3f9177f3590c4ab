"""Small ONNX models that are loaded on demand, and requests to them."""

import time
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper

from backends.footprint import SESSION, THREAD
from schedulers.reply import Reply
from schedulers.request import InferRequest
from schedulers.request import Sequence as SequenceMembership
from server.admit import admit
from server.fleet.fleet import Fleet
from server.fleet.memory.ledger import MIB
from server.served_version import ServedVersion

ON_DEMAND: dict[str, Any] = {"load_on_demand": True, "min_residency_secs": 0.0}
ROOM_FOR_ONE = SESSION + 2 * THREAD + MIB


def write(root: Path, name: str, parameters: str = "", version: int = 1) -> None:
    folder = root / name / str(version)
    folder.mkdir(parents=True, exist_ok=True)
    value = [helper.make_tensor_value_info(one, TensorProto.FLOAT, ["b", 4]) for one in "XY"]
    node = helper.make_node("Identity", ["X"], ["Y"])
    graph = helper.make_graph([node], "g", value[:1], value[1:])
    opsets = [helper.make_opsetid("", 17)]
    onnx.save(helper.make_model(graph, opset_imports=opsets, ir_version=8), folder / "model.onnx")
    text = f'name: "{name}" backend: "onnxruntime" version_policy {{ all {{}} }}\n'
    (root / name / "config.pbtxt").write_text(text + parameters)


def parameter(key: str, value: str) -> str:
    return f'parameters {{ key: "{key}" value {{ string_value: "{value}" }} }}\n'


def send(
    served: ServedVersion, deadline_ns: int = 0, sequence: SequenceMembership | None = None
) -> Reply:
    inputs = {"X": np.ones((1, 4), np.float32)}
    count, key = admit(served.signature, inputs)
    name, number = served.signature.model, served.signature.version
    request = InferRequest(name, number, inputs, count, key, time.monotonic_ns(), "1")
    request.deadline_ns, request.sequence = deadline_ns, sequence
    return served.scheduler.submit(request)


def resident(fleet: Fleet) -> list[str]:
    return [row.name for row in fleet.residency.rows() if row.resident]

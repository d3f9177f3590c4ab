"""Sequence models with several states, states that grow, states of torch, and iterative ones."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper

DECOUPLED = "model_transaction_policy { decoupled: true }"
IDLE = "max_sequence_idle_microseconds: 60000000"
ONE = "instance_group { kind: KIND_CPU count: 1 }"

COUNTDOWN = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def initialize(self, args):
        self.left = {}
        self.decoupled = "stream" in args["model_name"]

    def execute(self, requests):
        answers = [self.one(request) for request in requests]
        return None if self.decoupled else answers

    def one(self, request):
        key = request.correlation_id()
        if request.flags() & pb_utils.TRITONSERVER_REQUEST_FLAG_SEQUENCE_START:
            value = int(request.inputs()[0].as_numpy().ravel()[0])
            self.left[key] = [value, 0]
        state = self.left[key]
        state[0] -= 1
        state[1] += 1
        over = state[0] <= 0
        made = pb_utils.InferenceResponse(
            [pb_utils.Tensor("OUTPUT", np.array([[state[1]]], np.int32))]
        )
        if self.decoupled:
            sender = request.get_response_sender()
            sender.send(made)
        if not over:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return None
        del self.left[key]
        if self.decoupled:
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
        return made
"""

SQUARE = """
import numpy as np
import threading
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self.work, args=(request,)).start()

    def work(self, request):
        sender = request.get_response_sender()
        value = request.inputs()[0].as_numpy()
        for _ in range(int(value[0])):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", value)]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


def write_onnx(folder: Path, nodes: Sequence[Any], inputs: Any, outputs: Any, config: str) -> None:
    """`inputs`, `outputs`: name → columns, a number or a text for any; INT32 all."""
    (folder / "1").mkdir(parents=True)

    def tensor(name: str, columns: int | str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.INT32, ["batch", columns])

    graph = helper.make_graph(
        list(nodes),
        folder.name,
        [tensor(*one) for one in inputs.items()],
        [tensor(*one) for one in outputs.items()],
        [helper.make_tensor("one", TensorProto.INT32, [1, 1], [1])],
    )
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    onnx.save(model, folder / "1" / "model.onnx")
    (folder / "config.pbtxt").write_text(
        f'name: "{folder.name}" backend: "onnxruntime" max_batch_size: 4 {ONE}\n'
        'input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }\n' + config
    )


def state(of: str, dims: str = "1", more: str = "") -> str:
    return (
        f'state {{ input_name: "{of}_IN" output_name: "{of}" data_type: TYPE_INT32 '
        f"dims: [ {dims} ] {more} }}"
    )


def write_two_states(root: Path) -> None:
    """SUM begins with 100, from a file, and COUNT with 0; both are outputs too."""
    folder = root / "two_states"
    initial = 'initial_state { name: "initial" data_type: TYPE_INT32 dims: [ 1 ] %s }'
    from_file, zero = initial % 'data_file: "hundred"', initial % "zero_data: true"
    write_onnx(
        folder,
        [
            helper.make_node("Add", ["INPUT", "SUM_IN"], ["SUM"]),
            helper.make_node("Add", ["one", "COUNT_IN"], ["COUNT"]),
            helper.make_node("Mul", ["SUM", "COUNT"], ["OUTPUT"]),
        ],
        {"INPUT": 1, "SUM_IN": 1, "COUNT_IN": 1},
        {"OUTPUT": 1, "SUM": 1, "COUNT": 1},
        'output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }\n'
        'output { name: "COUNT" data_type: TYPE_INT32 dims: [ 1 ] }\n'
        f"sequence_batching {{ {IDLE} {state('SUM', more=from_file)} "
        f"{state('COUNT', more=zero)} }}",
    )
    (folder / "initial_state").mkdir()
    (folder / "initial_state" / "hundred").write_bytes(np.array([100], np.int32).tobytes())


def write_growing(root: Path, name: str, strategy: str) -> None:
    """Each request appends its INPUT to all that came before, which begins as one zero."""
    write_onnx(
        root / name,
        [helper.make_node("Concat", ["ALL_IN", "INPUT"], ["ALL"], axis=1)],
        {"INPUT": 1, "ALL_IN": "before"},
        {"ALL": "after"},
        'output { name: "ALL" data_type: TYPE_INT32 dims: [ -1 ] }\n'
        f"sequence_batching {{ {strategy} {IDLE} {state('ALL', '-1')} }}",
    )


def write_torch_sum(root: Path) -> None:
    class Sum(torch.nn.Module):
        def forward(self, input: torch.Tensor, sum_in: torch.Tensor) -> dict[str, torch.Tensor]:
            made = input + sum_in
            return {"OUTPUT": made, "SUM": made * 1}

    folder = root / "torch_sum" / "1"
    folder.mkdir(parents=True)
    samples = torch.zeros(2, 1, dtype=torch.int32), torch.zeros(2, 1, dtype=torch.int32)
    rows = torch.export.Dim("rows", min=1, max=4)
    shapes = {"input": {0: rows}, "sum_in": {0: rows}}
    program = torch.export.export(Sum(), samples, dynamic_shapes=shapes)
    torch.export.save(program, folder / "model.pt2")
    (folder.parent / "config.pbtxt").write_text(
        f'name: "torch_sum" backend: "pytorch" max_batch_size: 4 {ONE}\n'
        'input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }\n'
        'output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }\n'
        f"sequence_batching {{ {IDLE} {state('SUM')} }}"
    )


def write_python(root: Path, name: str, code: str, config: str) -> None:
    folder = root / name / "1"
    folder.mkdir(parents=True)
    (folder / "model.py").write_text(code)
    (folder.parent / "config.pbtxt").write_text(f'name: "{name}" backend: "python" {ONE}\n{config}')


def write_countdown(root: Path, name: str, more: str = "") -> None:
    write_python(
        root,
        name,
        COUNTDOWN,
        'max_batch_size: 4 input { name: "INPUT" data_type: TYPE_INT32 dims: [ 1 ] }\n'
        'output { name: "OUTPUT" data_type: TYPE_INT32 dims: [ 1 ] }\n'
        "sequence_batching { iterative_sequence: true oldest { max_candidate_sequences: 8 } "
        f"{IDLE} }} {more}",
    )

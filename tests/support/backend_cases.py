"""Every backend with a model of pairs and one of rows, for the contract that all of them keep."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from onnx import TensorProto, helper
from torch.export import Dim

from support.hosting import HEAD
from support.runtime import (
    save_graph,
)
from support.tflite import save_tflite_pairs, save_tflite_rows

DEFAULT_MAX_BATCH = 4
PAIRS = """
max_batch_size: 8
input { name: "a" data_type: TYPE_FP32 dims: [ 2 ] }
input { name: "b" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "X" data_type: TYPE_FP32 dims: [ 2 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] }
"""
"""Of a model that answers a as X and b as Y."""
ROWS = """
max_batch_size: 8
input { name: "X" data_type: TYPE_INT64 dims: [ 1 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 1, 2 ] }
"""
"""Of a model that answers row X of a table of three, and refuses a request for any other."""
PYTHON_PAIRS = (
    HEAD
    + """
class TritonPythonModel:
    def execute(self, requests):
        return [
            pb_utils.InferenceResponse([
                pb_utils.Tensor(to, pb_utils.get_input_tensor_by_name(r, of).as_numpy())
                for to, of in (("X", "a"), ("Y", "b"))
            ])
            for r in requests
        ]
"""
)
PYTHON_ROWS = (
    HEAD
    + """
class TritonPythonModel:
    def execute(self, requests):
        return [self.row(r.inputs()[0].as_numpy()) for r in requests]
    def row(self, x):
        if (x > 2).any():
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("no such row"))
        return answer((x[:, :, None] + np.array([0, 0.5])).astype(np.float32), "Y")
"""
)


class Pairs(torch.nn.Module):
    def forward(self, a: torch.Tensor, b: torch.Tensor) -> dict[str, torch.Tensor]:
        return {"X": a + 0, "Y": b + 0}


class Rows(torch.nn.Module):
    def forward(self, X: torch.Tensor) -> dict[str, torch.Tensor]:
        table = torch.arange(3)[:, None] + torch.tensor([[0.0, 0.5]])
        return {"Y": table[X]}


def export_pairs(path: Path) -> None:
    rows = Dim("rows", min=1, max=64)
    program = torch.export.export(
        Pairs(),
        (torch.ones(2, 2), torch.ones(2, 2)),
        dynamic_shapes={"a": {0: rows}, "b": {0: rows}},
    )
    torch.export.save(program, path)


def script_rows(path: Path) -> None:
    torch.jit.script(Rows()).save(str(path))  # type: ignore[no-untyped-call]


def save_pairs(path: Path) -> None:
    tensors = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ("N", 2)) for name in "abXY"
    }
    nodes = [helper.make_node("Identity", [of], [to]) for of, to in ("aX", "bY")]
    inputs, outputs = [tensors["a"], tensors["b"]], [tensors["X"], tensors["Y"]]
    save_graph(path, helper.make_graph(nodes, "g", inputs, outputs))


def save_rows(path: Path) -> None:
    table = helper.make_tensor("table", TensorProto.FLOAT, (3, 2), [0.0, 0.5, 1.0, 1.5, 2.0, 2.5])
    node = helper.make_node("Gather", ["table", "X"], ["Y"])
    x = helper.make_tensor_value_info("X", TensorProto.INT64, ("N", 1))
    y = helper.make_tensor_value_info("Y", TensorProto.FLOAT, ("N", 1, 2))
    save_graph(path, helper.make_graph([node], "g", [x], [y], [table]))


def save_openvino(path: Path) -> None:
    """The IR, and its weights beside it."""
    import openvino

    onnx_file = path.with_name("for_openvino.onnx")
    save_pairs(onnx_file)
    openvino.save_model(openvino.Core().read_model(onnx_file), path, compress_to_fp16=False)
    onnx_file.unlink()


def save_ncnn(path: Path) -> None:
    path.write_text(
        "7767517\n4 4\nInput a 0 1 a\nInput b 0 1 b\n"
        "BinaryOp x 1 1 a X 0=2 1=1 2=1.0\nBinaryOp y 1 1 b Y 0=2 1=1 2=1.0\n"
    )
    path.with_suffix(".bin").write_bytes(b"")


def save_mnn(path: Path) -> None:
    from MNN import expr

    made = []
    for of, to in ("aX", "bY"):
        one = expr.placeholder([1, 2], expr.NCHW, expr.float)
        one.name = of
        result = one * expr.const([1.0], [1], expr.NCHW, expr.float)
        result.name = to
        made.append(result)
    expr.save(made, str(path))


def no_file(path: Path) -> None:
    """Identity has none."""


class RowsModel(NamedTuple):
    """A backend's model of ROWS: its file, a writer of it, and its complaint of row 9."""

    file: str
    write: Callable[[Path], object]
    complaint: str


@dataclass(frozen=True)
class Case:
    """A backend, the file of its models, and a writer of a model of PAIRS.

    `beside`: other files that the writer makes. `hosted`: in a worker process, as every backend can
    be where its config asks for it (`isolated`). `knows`: the file itself says which inputs and
    outputs it has. `complaint`: of a file that is none of its models. `rows`: None where a model of
    it refuses no request.
    """

    name: str
    backend: str
    file: str = ""
    write: Callable[[Path], object] = no_file
    beside: tuple[str, ...] = ()
    hosted: bool = False
    isolated: bool = False
    knows: bool = False
    complaint: str = ""
    rows: RowsModel | None = None


CASES = [
    Case("identity", "identity"),
    Case(
        "onnxruntime",
        "onnxruntime",
        "model.onnx",
        save_pairs,
        knows=True,
        rows=RowsModel(
            "model.onnx", save_rows, "model 'm' version 1: onnxruntime: .*idx=9 must be within"
        ),
        complaint=r"model\.onnx is not an ONNX model",
    ),
    Case(
        "pytorch",
        "pytorch",
        "model.pt2",
        export_pairs,
        knows=True,
        rows=RowsModel("model.pt", script_rows, "model 'm' version 1: torch: .*index 9 is out of"),
        complaint=r"model\.pt2 is not a PyTorch archive, or is cut short",
    ),
    Case(
        "python in a worker",
        "python",
        "model.py",
        lambda path: path.write_text(PYTHON_PAIRS),
        hosted=True,
        rows=RowsModel("model.py", lambda path: path.write_text(PYTHON_ROWS), "no such row"),
        complaint=r"'model\.py' cannot be imported: SyntaxError",
    ),
    Case(
        "openvino",
        "openvino",
        "model.xml",
        save_openvino,
        beside=("model.bin",),
        knows=True,
        complaint=r"model\.xml is not an OpenVINO model",
    ),
    Case(
        "litert",
        "litert",
        "model.tflite",
        save_tflite_pairs,
        knows=True,
        rows=RowsModel(
            "model.tflite",
            save_tflite_rows,
            "model 'm' version 1: litert: gather index out of bounds",
        ),
        complaint=r"model\.tflite is not a model that LiteRT reads",
    ),
    Case(
        "ncnn in a worker",
        "ncnn",
        "model.param",
        save_ncnn,
        beside=("model.bin",),
        hosted=True,
        complaint=r"ncnn cannot load model\.param",
    ),
    Case(
        "mnn in a worker",
        "mnn",
        "model.mnn",
        save_mnn,
        hosted=True,
        knows=True,
        complaint=r"model\.mnn is not an MNN model",
    ),
]
ISOLATED = [
    replace(case, name=f"{case.name} with isolation", hosted=True, isolated=True)
    for case in CASES
    if not case.hosted and case.backend != "pytorch"  # which the server hosts anyway
]
CASES += ISOLATED
IN_THIS_PROCESS = [case for case in CASES if not case.hosted]
WITH_A_FILE = [case for case in CASES if case.file]
KNOWING = [case for case in CASES if case.knows]
REFUSING = [case for case in CASES if case.rows is not None]


def of(cases: list[Case]) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("case", parameters(cases))


def parameters(cases: list[Case]) -> list[Any]:
    """By name; workers with runtimes that take seconds to import are for the slow suite."""
    slow = [case for case in cases if case.isolated and case.backend in ("openvino", "litert")]
    return [
        pytest.param(case, id=case.name, marks=[pytest.mark.slow] if case in slow else [])
        for case in cases
    ]

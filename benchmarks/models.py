"""The repositories the benchmarks serve: `python -m benchmarks.models --into DIR`, built once.

`DIR/serving` has `identity` (built-in backend), `identity_onnx` and `cnn`; `DIR/examples` is the
examples' own; `DIR/beside` has `digits`, `DIR/many` has it too, with 200 small networks beside it.
"""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
from numpy.typing import NDArray
from onnx import TensorProto, helper, numpy_helper

from benchmarks.shots import Problem

REPOSITORIES = ("serving", "examples", "beside", "many")
ROW = 16
SMALL_MODELS = 200
SMALL_WIDTH = 64
OPSET, IR_VERSION = 17, 8
STAMP = ".benchmark-models-3"

IDENTITY_CONFIG = """\
name: "identity"
backend: "identity"
max_batch_size: 64
input [ { name: "INPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
output [ { name: "OUTPUT0" data_type: TYPE_FP32 dims: [ 16 ] } ]
dynamic_batching { }
"""
IDENTITY_ONNX_CONFIG = """\
name: "identity_onnx"
backend: "onnxruntime"
max_batch_size: 64
dynamic_batching { }
"""
CNN_CONFIG = """\
name: "cnn"
backend: "onnxruntime"
max_batch_size: 8
"""


def ensure(models: Path) -> None:
    """Build what is missing, in a process of its own: torch stays out of the measuring one."""
    if not (models / STAMP).is_file():
        print("building the benchmarks' models (once)", file=sys.stderr)
        command = [sys.executable, "-m", "benchmarks.models", "--into", str(models)]
        subprocess.run(command, check=True, timeout=600)


def identity_problem(model: str) -> Problem:
    """FP32 [1,16] that must come back as it was."""
    row = np.round(np.linspace(0, 1, ROW, dtype=np.float64), 5).astype(np.float32).reshape(1, ROW)
    return Problem(model, "INPUT0", row, "OUTPUT0", row)


def cnn_problem(models: Path) -> Problem:
    """One random image, and the logits onnxruntime by itself gets for it."""
    import onnxruntime

    pixels = np.round(np.random.default_rng(0).random((1, 3, 224, 224)), 5).astype(np.float32)
    session = onnxruntime.InferenceSession(cnn_file(models))
    (logits,) = session.run(["LOGITS"], {"IMAGE": pixels})
    return Problem("cnn", "IMAGE", pixels, "LOGITS", logits)


def digits_problem(models: Path) -> Problem:
    """One blank digit, and the logits onnxruntime by itself gets for it from version 2."""
    import onnxruntime

    image = np.zeros((1, 1, 8, 8), np.float32)
    session = onnxruntime.InferenceSession(models / "beside" / "digits" / "2" / "model.onnx")
    (logits,) = session.run(["LOGITS"], {"IMAGE": image})
    return Problem("digits", "IMAGE", image, "LOGITS", logits)


def cnn_file(models: Path) -> Path:
    """The CNN's graph."""
    return models / "serving" / "cnn" / "1" / "model.onnx"


def small_model_bytes(models: Path) -> int:
    """The size of one of the small networks, nearly all weights."""
    return (models / "many" / "small_000" / "1" / "model.onnx").stat().st_size


def main() -> None:
    """Build everything afresh."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description=__doc__)
    parser.add_argument("--into", type=Path, required=True, help="folder for the repositories")
    models: Path = parser.parse_args().into
    for name in REPOSITORIES:
        shutil.rmtree(models / name, ignore_errors=True)
    _build_serving(models / "serving")
    _build_examples(models)
    for number in range(SMALL_MODELS):
        save(_small_graph(number), models / "many" / f"small_{number:03}")
    (models / STAMP).touch()


def _build_serving(repository: Path) -> None:
    import torch

    from benchmarks.mobilenet import mobilenet_v2
    from examples.onnx_file import export

    (repository / "identity" / "1").mkdir(parents=True)
    (repository / "identity" / "config.pbtxt").write_text(IDENTITY_CONFIG)
    save(identity_graph(), repository / "identity_onnx")
    (repository / "identity_onnx" / "config.pbtxt").write_text(IDENTITY_ONNX_CONFIG)
    (repository / "cnn" / "1").mkdir(parents=True)
    (repository / "cnn" / "config.pbtxt").write_text(CNN_CONFIG)
    sample = torch.zeros(2, 3, 224, 224)
    export(mobilenet_v2(), sample, repository / "cnn" / "1" / "model.onnx", ("IMAGE", "LOGITS"))


def _build_examples(models: Path) -> None:
    from examples.build import build_all

    build_all(models / "examples")
    for repository in ("beside", "many"):
        shutil.copytree(models / "examples" / "digits", models / repository / "digits")


def identity_graph() -> onnx.GraphProto:
    """Sixteen floats there and back."""
    node = helper.make_node("Identity", ["INPUT0"], ["OUTPUT0"])
    return helper.make_graph([node], "identity", [rows("INPUT0", ROW)], [rows("OUTPUT0", ROW)])


def _small_graph(number: int) -> onnx.GraphProto:
    """One layer of its own random weights, 64 → 64."""
    random = np.random.default_rng(number)
    weights: NDArray[np.float32] = random.random((SMALL_WIDTH, SMALL_WIDTH), dtype=np.float32)
    return helper.make_graph(
        [
            helper.make_node("MatMul", ["X", "W"], ["product"]),
            helper.make_node("Relu", ["product"], ["Y"]),
        ],
        f"small_{number}",
        [rows("X", SMALL_WIDTH)],
        [rows("Y", SMALL_WIDTH)],
        initializer=[numpy_helper.from_array(weights, "W")],
    )


def rows(name: str, width: int) -> onnx.ValueInfoProto:
    """An input or output of FP32, a batch of rows."""
    return helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", width])


def save(graph: onnx.GraphProto, model: Path) -> None:
    """Write version 1 of a model from its graph."""
    made = helper.make_model(
        graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=IR_VERSION
    )
    onnx.checker.check_model(made)
    (model / "1").mkdir(parents=True)
    onnx.save(made, model / "1" / "model.onnx")


if __name__ == "__main__":
    main()

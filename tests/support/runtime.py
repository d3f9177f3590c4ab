"""Versions, requests and small real ONNX models for the tests of runtimes and of checking."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
from google.protobuf import text_format
from onnx import TensorProto, helper

from backends.seam import Batch, Device
from repository.config.tensors import Array
from repository.model import ModelConfig, ModelVersion
from schedulers.request import InferRequest

CPU = Device("cpu", 0, 1)


def make_version(folder: Path, config: str = "", name: str = "m") -> ModelVersion:
    """Version 1 of a model in `folder`, whose own folder exists; `config` is config.pbtxt."""
    path = folder / name / "1"
    path.mkdir(parents=True, exist_ok=True)
    parsed = text_format.Parse(config, ModelConfig(name=name))
    return ModelVersion(name, 1, path.parent, path, parsed, "")


def with_config(version: ModelVersion, config: ModelConfig) -> ModelVersion:
    return ModelVersion(version.name, 1, version.folder, version.path, config, "")


def member(wanted: Sequence[str] = (), **inputs: Array) -> InferRequest:
    rows = next(iter(inputs.values())).shape[0]
    return InferRequest("m", 1, inputs, rows, None, 0, requested_outputs=tuple(wanted))


def batch_of(*members: InferRequest, batched: bool = True) -> Batch:
    return Batch(members, [m.rows if batched else 1 for m in members], batched)


def words(*elements: bytes) -> Array:
    """A BYTES tensor of shape [1, n]."""
    array = np.empty((1, len(elements)), np.object_)
    array[0, :] = elements
    return array


def save_graph(path: Path, graph: onnx.GraphProto) -> None:
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])
    model.ir_version = 10
    path.write_bytes(model.SerializeToString())


def save_unary(
    path: Path,
    op: str = "Identity",
    kind: int = TensorProto.FLOAT,
    shape: Sequence[object] = ("N", 4),
) -> None:
    """A graph of one node, X → Y, both of `kind` and `shape`."""
    save_graph(
        path,
        helper.make_graph(
            [helper.make_node(op, ["X"], ["Y"])],
            "g",
            [helper.make_tensor_value_info("X", kind, shape)],
            [helper.make_tensor_value_info("Y", kind, shape)],
        ),
    )

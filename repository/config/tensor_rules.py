"""Rules for the inputs and outputs of a config."""

from collections.abc import Sequence
from itertools import pairwise
from math import prod
from pathlib import PurePosixPath
from typing import Any

from repository.config.finding_report import FindingReport
from repository.model import ModelConfig


def _inputs(config: ModelConfig, report: FindingReport) -> None:
    _tensors("input", config.input, config, report)
    for index, tensor in enumerate(config.input):
        if tensor.format and tensor.dims and len(tensor.dims) != 3:
            path = f"input[{index}].format"
            name = tensor.Format.Name(tensor.format)
            problem = f"{path} {name} needs 3 dims, got {list(tensor.dims)}"
            report.add(path, "E116", problem)


def _outputs(config: ModelConfig, report: FindingReport) -> None:
    _tensors("output", config.output, config, report)
    for index, tensor in enumerate(config.output):
        if leads_out(tensor.label_filename):
            path = f"output[{index}].label_filename"
            problem = f"must stay inside the model's folder, got '{tensor.label_filename}'"
            report.add(path, "E117", f"{path} {problem}")


def leads_out(name: str) -> bool:
    """Whether a file name could lead out of the folder it is meant to be in."""
    path = PurePosixPath(name)
    return path.is_absolute() or ".." in path.parts or "\0" in name


def _tensors(kind: str, tensors: Sequence[Any], config: ModelConfig, report: FindingReport) -> None:
    names: set[str] = set()
    for index, tensor in enumerate(tensors):
        path = f"{kind}[{index}]"
        if not tensor.name:
            report.add(path, "E112", f"{path} has no name")
        elif tensor.name in names:
            report.add(f"{path}.name", "E112", f"{path} '{tensor.name}' is an {kind} already")
        names.add(tensor.name)
        _complete(path, tensor, report)
        _dims(f"{path}.dims", tensor.dims, report)
        if tensor.HasField("reshape"):
            _reshape(f"{path}.reshape", tensor, config, report)


def _complete(path: str, tensor: Any, report: FindingReport) -> None:
    if not report.complete:
        return
    if not tensor.data_type:
        report.add(path, "E113", f"{path} '{tensor.name}' has no data_type")
    if not tensor.dims:
        accepted = "a scalar is dims: [1] with reshape: { shape: [] }"
        report.add(path, "E114", f"{path} '{tensor.name}' has no dims; {accepted}")


def _dims(path: str, dims: Sequence[int], report: FindingReport) -> None:
    for index, dim in enumerate(dims):
        if dim < 1 and dim != -1:
            where = f"{path}[{index}]"
            report.add(where, "E114", f"{where} must be ≥ 1, or -1 for any size, got {dim}")


def _reshape(path: str, tensor: Any, config: ModelConfig, report: FindingReport) -> None:
    dims, shape = list(tensor.dims), list(tensor.reshape.shape)
    _dims(f"{path}.shape", shape, report)
    if not shape and config.max_batch_size == 0 and report.batch_size_known(config):
        problem = "may be empty only on a model with max_batch_size > 0"
        report.add(path, "E115", f"{path} {problem}")
    if not dims:
        report.add(path, "E115", f"{path} {shape} needs dims to reshape from")
    elif _segments(dims) != _segments(shape):
        problem = f"{path} {shape} must hold as many elements as dims {dims}"
        report.add(path, "E115", f"{problem}, between one -1 and the next")


def _segments(shape: Sequence[int]) -> list[int]:
    """Element counts before, between and after the dims of any size: [2, 3, -1, 4] → [6, 4]."""
    cuts = [-1, *(index for index, dim in enumerate(shape) if dim == -1), len(shape)]
    return [prod(shape[a + 1 : b]) for a, b in pairwise(cuts)]


TENSOR_RULES = (_inputs, _outputs)

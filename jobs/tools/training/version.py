"""The version that a recipe belongs to: the names and open axes of its tensors, and its answers."""

import math
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from tritonclient.grpc import model_config_pb2 as pb

from control.jobs.messages import Task
from control.jobs.specs.training import TrainingSource
from jobs.tools.networks.files import FILE, first_line, named_file
from jobs.tools.networks.sessions import open_session
from jobs.tools.result.config import read_config, result_config
from jobs.tools.work import refuse

Outputs = tuple[Tensor, ...]


class SourceVersion:
    """A version's config, and its ONNX file where it has one."""

    def __init__(self, task: Task, spec: TrainingSource) -> None:
        self.name = f"model '{spec.model}' version {spec.version}"
        self.config = read_config(Path(task.source))
        self.inputs = [one.name for one in self.config.input]
        self.outputs = [one.name for one in self.config.output]
        if not self.inputs or not self.outputs:
            refuse(f"{self.name}: its config.pbtxt names no inputs or no outputs")
        named = self.config.default_model_filename or FILE
        path = named_file(Path(task.source), named, self.name)
        self.onnx = path if path.suffix == ".onnx" and path.is_file() else None

    def open_axes(self) -> dict[str, dict[int, str]]:
        """By tensor, the axes whose size differs between calls; the first always does."""
        tensors = [*self.config.input, *self.config.output]
        return {one.name: self._axes(one) for one in tensors}

    def _axes(self, tensor: Any) -> dict[int, str]:
        first = 1 if self.config.max_batch_size else 0
        axes = {
            first + at: f"{tensor.name}_{at}" for at, size in enumerate(tensor.dims) if size < 0
        }
        return axes | {0: "batch"}

    def in_result(self, backend: str = "onnxruntime") -> pb.ModelConfig:
        """The config of a result that is an ONNX file with the same tensors."""
        same = self.config.backend == backend or self.config.platform.startswith("onnx")
        return result_config(self.config, self.config.name, backend, same_runtime=same)


class OnnxAnswer:
    """An ONNX file as a recipe sees a network: tensors in, a tensor or a tuple of them out."""

    def __init__(self, path: Path, whose: str, threads: int) -> None:
        self._session = open_session(path, whose, threads)
        self._names = [one.name for one in self._session.get_inputs()]
        self._whose = whose

    def __call__(self, *inputs: Tensor) -> Any:
        outputs = tuple(torch.from_numpy(one) for one in self.arrays(inputs))
        return outputs[0] if len(outputs) == 1 else outputs

    def arrays(self, inputs: tuple[Tensor, ...]) -> list[NDArray[Any]]:
        """Outputs as they are. Refuses inputs that the file does not take, with their shapes."""
        if len(inputs) != len(self._names):
            refuse(
                f"{self._whose} has {len(self._names)} inputs ({', '.join(self._names)}), but the "
                f"recipe's batches have {len(inputs)}"
            )
        given = {
            name: np.ascontiguousarray(one.detach().numpy())
            for name, one in zip(self._names, inputs, strict=True)
        }
        try:
            found: list[NDArray[Any]] = self._session.run(None, given)
        except Exception as error:  # noqa: BLE001 - onnxruntime's errors have no common class
            shapes = ", ".join(f"{one.dtype} {list(one.shape)}" for one in given.values())
            refuse(
                f"{self._whose} does not take the recipe's batch ({shapes}): {first_line(error)}"
            )
        return found


def tensors_of(outputs: Any, whose: str) -> Outputs:
    """Outputs as a tuple. Refuses what is not tensors."""
    parts = tuple(outputs) if isinstance(outputs, (tuple, list)) else (outputs,)
    if not parts or not all(isinstance(one, Tensor) for one in parts):
        refuse(f"{whose} must give tensors, not {type(outputs).__name__}")
    return parts


def rows_of(inputs: tuple[Tensor, ...], count: int) -> tuple[Tensor, ...]:
    """`count` rows made of those there are, repeated where they are too few."""
    times = -(-count // len(inputs[0]))
    return tuple(torch.cat([one] * times)[:count].contiguous() for one in inputs)


def largest_gap(expected: Outputs, found: Outputs) -> float:
    """The largest difference over the largest value expected; infinite for other shapes, and
    where either is not finite. Tensors without numbers are equal."""
    if [one.shape for one in expected] != [one.shape for one in found]:
        return float("inf")
    pairs = [
        (one.double(), other.double())
        for one, other in zip(expected, found, strict=True)
        if one.numel()
    ]
    gaps = [float((one - other).abs().max()) for one, other in pairs]
    if not all(math.isfinite(gap) for gap in gaps):
        return float("inf")
    scale = max((float(one.abs().max()) for one, _ in pairs), default=0.0) or 1.0
    return max(gaps, default=0.0) / scale

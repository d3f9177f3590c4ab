"""LiteRT, once TensorFlow Lite: model.tflite on the CPU, one interpreter for each instance.

An interpreter is one thread's; `invoke` releases the GIL. Tensors have the names of the file's
signature where it has one, else those of its tensors.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from ai_edge_litert.interpreter import Interpreter
from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import (
    Artefact,
    TensorDescription,
    artefact_path,
    complete_config,
    name_file,
    refuse,
    require_cpu,
)
from backends.errors import ExecutionFailed
from backends.seam import Device, LoadedInstances, Tensors
from backends.stacked import StackedInstance
from repository.config.tensors import Array
from repository.model import ModelConfig, ModelVersion

TYPES: dict[str, int] = {
    "bool": pb.TYPE_BOOL,
    "uint8": pb.TYPE_UINT8,
    "uint16": pb.TYPE_UINT16,
    "uint32": pb.TYPE_UINT32,
    "uint64": pb.TYPE_UINT64,
    "int8": pb.TYPE_INT8,
    "int16": pb.TYPE_INT16,
    "int32": pb.TYPE_INT32,
    "int64": pb.TYPE_INT64,
    "float16": pb.TYPE_FP16,
    "float32": pb.TYPE_FP32,
    "float64": pb.TYPE_FP64,
}

_DEFAULT_SIGNATURE = "serving_default"
_FLEX = "Select TensorFlow op"
_ERRORS = (ValueError, RuntimeError, KeyError)


class LiteRt:
    """The backend `litert`."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ModelConfig:
        """See `backends.seam.Backend`; prepares the graph's operators, runs none."""
        path = artefact_path(version, "model.tflite")
        ports = ports_of(_opened(version, path, 1))
        inputs = tuple(_describe(name, one) for name, one in ports.inputs.items())
        outputs = tuple(_describe(name, one) for name, one in ports.outputs.items())
        artefact = Artefact(path.name, inputs, outputs)
        config = complete_config(version, "litert", artefact, default_max_batch)
        name_file(config, path.name)
        return config

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        """`count` interpreters of one file. Raises LoadFailed in LiteRT's words."""
        require_cpu(version, device, "LiteRT")
        path = artefact_path(version, "model.tflite")
        threads = max(device.threads, 1)
        instances = [
            LiteRtInstance(version, device, _opened(version, path, threads)) for _ in range(count)
        ]
        return LoadedInstances(instances, version.config)


class Ports(NamedTuple):
    """What an interpreter says of each input and output, by name: index, dtype, shape_signature."""

    inputs: Mapping[str, Mapping[str, Any]]
    outputs: Mapping[str, Mapping[str, Any]]


def ports_of(interpreter: Any) -> Ports:
    """The ports of the default signature, or of the only one; of the graph where there is none."""
    signatures = interpreter.get_signature_list()
    chosen = _DEFAULT_SIGNATURE if _DEFAULT_SIGNATURE in signatures else next(iter(signatures), "")
    if not chosen:
        return Ports(
            {one["name"]: one for one in interpreter.get_input_details()},
            {one["name"]: one for one in interpreter.get_output_details()},
        )
    runner = interpreter.get_signature_runner(chosen)
    return Ports(runner.get_input_details(), runner.get_output_details())


def _opened(version: ModelVersion, path: Path, threads: int) -> Any:
    try:
        interpreter = Interpreter(model_path=str(path), num_threads=threads)
        interpreter.allocate_tensors()
    except _ERRORS as error:
        text = " ".join(str(error).split())
        if _FLEX in text:
            text += "; convert the model with LiteRT's own operators only (TFLITE_BUILTINS)"
        refuse(version, f"{path.name} is not a model that LiteRT reads: {text}")
    return interpreter


def _describe(name: str, details: Mapping[str, Any]) -> TensorDescription:
    kind = np.dtype(details["dtype"]).name
    problem = "" if kind in TYPES else f"has type {kind}, which this backend does not pass on"
    shape = tuple(int(dim) for dim in details["shape_signature"])
    if not shape:
        shape = tuple(int(dim) for dim in details["shape"])
    return TensorDescription(name, TYPES.get(kind, pb.TYPE_INVALID), shape, problem=problem)


class LiteRtInstance(StackedInstance):
    """One interpreter; it is resized when the number of rows changes."""

    def __init__(self, version: ModelVersion, device: Device, interpreter: Any) -> None:
        super().__init__(version, "cpu", device.threads)
        self._interpreter = interpreter
        ports = ports_of(interpreter)
        self._inputs = {name: int(one["index"]) for name, one in ports.inputs.items()}
        self._outputs = {name: int(one["index"]) for name, one in ports.outputs.items()}
        self._shapes = {name: tuple(one["shape"]) for name, one in ports.inputs.items()}

    def close(self) -> None:
        super().close()
        del self._interpreter  # frees the weights

    def run(self, inputs: Tensors, outputs: tuple[str, ...]) -> Mapping[str, Array]:
        interpreter = self._interpreter
        try:
            self._resize(inputs)
            for name, array in inputs.items():
                interpreter.set_tensor(self._inputs[name], array)
            interpreter.invoke()
            return {name: interpreter.get_tensor(self._outputs[name]) for name in outputs}
        except _ERRORS as error:
            raise ExecutionFailed(f"{self._where}: litert: {error}") from error

    def _resize(self, inputs: Tensors) -> None:
        changed = [name for name, array in inputs.items() if array.shape != self._shapes[name]]
        if not changed:
            return
        try:
            for name in changed:
                self._interpreter.resize_tensor_input(self._inputs[name], inputs[name].shape)
                self._shapes[name] = inputs[name].shape
            self._interpreter.allocate_tensors()
        except _ERRORS:
            self._shapes = dict.fromkeys(self._shapes, ())  # the next run sets all of them anew
            raise

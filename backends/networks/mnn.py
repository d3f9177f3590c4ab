"""MNN: model.mnn on the CPU, in a worker process, for the library holds the GIL while it runs.

Nothing of MNN's own command line tools is used: they install packages and report to a server.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
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
from repository.config.tensors import BY_DTYPE, Array
from repository.model import ModelConfig, ModelVersion

_FAILURES = (RuntimeError, SystemError, ValueError, TypeError)
"""SystemError ("returned a result with an exception set") is what it raises for any bad file."""


class Mnn:
    """The backend `mnn`."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ModelConfig:
        """See `backends.seam.Backend`; reads the graph, runs nothing."""
        path = artefact_path(version, "model.mnn")
        artefact = _artefact(path, _graph(version, path))
        config = complete_config(version, "mnn", artefact, default_max_batch)
        name_file(config, path.name)
        return config

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        """`count` modules of one file. Raises LoadFailed."""
        require_cpu(version, device, "MNN")
        path = artefact_path(version, "model.mnn")
        instances = [MnnInstance(version, device, path) for _ in range(count)]
        return LoadedInstances(instances, version.config)


class _Graph(NamedTuple):
    """The inputs and outputs of a file by name, for MNN keeps no order: the variables of each."""

    inputs: Mapping[str, Any]
    outputs: Mapping[str, Any]


def _graph(version: ModelVersion, path: Path) -> _Graph:
    import MNN.expr as expr
    import MNN.nn as nn

    try:
        variables = expr.load_as_dict(str(path))
        info = nn.load_module_from_file(str(path), [], []).get_info() if variables else {}
        inputs = {name: variables[name] for name in sorted(info.get("inputNames", ()))}
        outputs = {name: variables[name] for name in sorted(info.get("outputNames", ()))}
    except (*_FAILURES, KeyError) as error:
        refuse(version, f"{path.name} is not an MNN model: {error}")
    if not inputs or not outputs:
        refuse(version, f"{path.name} is not an MNN model: it has no inputs or no outputs")
    return _Graph(inputs, outputs)


def _artefact(path: Path, graph: _Graph) -> Artefact:
    """MNN infers shapes anew at each run, and a file does not tell an open first dimension from 1:
    it counts as open. Shapes of outputs follow from those of inputs, where these are known."""
    inputs = tuple(_describe(name, one) for name, one in graph.inputs.items())
    known = all(-1 not in one.shape[1:] for one in inputs if one.shape is not None)
    outputs = tuple(_describe(name, one, known) for name, one in graph.outputs.items())
    return Artefact(path.name, inputs, outputs)


def _describe(name: str, variable: Any, has_shape: bool = True) -> TensorDescription:
    kind = _types().get(variable.dtype)
    problem = "" if kind else f"has type {variable.dtype}, which this backend does not pass on"
    if variable.dtype is None:
        problem = "has no shape that MNN can infer from the file's inputs; the file is damaged"
    shape = None
    if has_shape and variable.shape:
        shape = (-1, *(size if size > 0 else -1 for size in variable.shape[1:]))
    data_type = pb.TYPE_INVALID if kind is None else BY_DTYPE[kind].config
    return TensorDescription(name, data_type, shape, problem=problem)


def _types() -> dict[Any, np.dtype[Any]]:
    import MNN.expr as expr

    return {
        expr.float: np.dtype(np.float32),
        expr.double: np.dtype(np.float64),
        expr.int: np.dtype(np.int32),
        expr.int64: np.dtype(np.int64),
        expr.uint8: np.dtype(np.uint8),
    }


class MnnInstance(StackedInstance):
    """A module with a runtime of its own."""

    def __init__(self, version: ModelVersion, device: Device, path: Path) -> None:
        super().__init__(version, "cpu", device.threads)
        import MNN.expr as expr
        import MNN.nn as nn

        self._expr = expr
        graph = _graph(version, path)
        self._inputs, self._outputs = list(graph.inputs), list(graph.outputs)
        options = {"numThread": max(device.threads, 1), "precision": "high", "backend": "CPU"}
        try:
            self._runtime = nn.create_runtime_manager((options,))
            self._module = nn.load_module_from_file(
                str(path), self._inputs, self._outputs, runtime_manager=self._runtime
            )
        except _FAILURES as error:
            refuse(version, f"MNN cannot load {path.name}: {error}")
        self._types = {dtype: kind for kind, dtype in _types().items()}

    def run(self, inputs: Tensors, outputs: tuple[str, ...]) -> Mapping[str, Array]:
        expr = self._expr
        try:
            variables = [self._variable(inputs[name]) for name in self._inputs]
            found = self._module.forward(variables)
            return {
                name: np.array(expr.convert(one, expr.NCHW).read())
                for name, one in zip(self._outputs, found, strict=True)
                if name in outputs
            }
        except _FAILURES as error:
            raise ExecutionFailed(
                f"{self._where}: mnn: {error}; the shapes of the request may not suit the network"
            ) from error

    def _variable(self, array: Array) -> Any:
        kind = self._types[array.dtype]
        variable = self._expr.placeholder(list(array.shape), self._expr.NCHW, kind)
        variable.write(np.ascontiguousarray(array))
        return variable

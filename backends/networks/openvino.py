"""OpenVINO: IR files (model.xml beside model.bin) and ONNX files, on the CPU.

`compile_model` and `infer` release the GIL; a compiled model is shared by its instances, an infer
request is one thread's.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import openvino as ov
from tritonclient.grpc import model_config_pb2 as pb

from backends.artefact import (
    Artefact,
    TensorDescription,
    artefact_path,
    complete_config,
    inside,
    name_file,
    parameter,
    refuse,
    require_cpu,
)
from backends.errors import ExecutionFailed
from backends.seam import Device, LoadedInstances, Tensors
from backends.stacked import StackedInstance
from repository.config.tensors import Array
from repository.model import ModelConfig, ModelVersion

TYPES: dict[str, int] = {
    "boolean": pb.TYPE_BOOL,
    "u8": pb.TYPE_UINT8,
    "u16": pb.TYPE_UINT16,
    "u32": pb.TYPE_UINT32,
    "u64": pb.TYPE_UINT64,
    "i8": pb.TYPE_INT8,
    "i16": pb.TYPE_INT16,
    "i32": pb.TYPE_INT32,
    "i64": pb.TYPE_INT64,
    "f16": pb.TYPE_FP16,
    "f32": pb.TYPE_FP32,
    "f64": pb.TYPE_FP64,
}

PRECISIONS = ("f32", "bf16", "f16")
_PRECISION = "INFERENCE_PRECISION_HINT"
_LARGEST_HEAD_BYTES = 4096
_XML_MARK = b"<net"


class OpenVino:
    """The backend `openvino`."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ModelConfig:
        """See `backends.seam.Backend`; parses the graph, compiles and runs nothing."""
        path = _model_file(version)
        if path.suffix == ".onnx":
            from backends.onnx.complete import read_artefact

            artefact = read_artefact(version, path)
            _read(version, path)  # it has operators of its own, and says which it lacks
        else:
            artefact = _artefact(path, _read(version, path))
        config = complete_config(version, "openvino", artefact, default_max_batch)
        name_file(config, path.name)
        return config

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        """One compiled model shared by `count` instances. Raises LoadFailed in OpenVINO's words."""
        require_cpu(version, device, "OpenVINO")
        path = _model_file(version)
        # Left to itself it takes every core, and computes in bfloat16 where the CPU can.
        options = {
            "INFERENCE_NUM_THREADS": max(device.threads, 1),
            "NUM_STREAMS": count,
            "PERFORMANCE_HINT": "LATENCY",
            _PRECISION: _precision(version),
        }
        try:
            compiled = ov.Core().compile_model(_read(version, path), "CPU", options)
            instances = [OpenVinoInstance(version, device, compiled) for _ in range(count)]
        except RuntimeError as error:
            refuse(version, f"openvino cannot load {path.name}: {_cause(error)}")
        return LoadedInstances(instances, version.config)


def _model_file(version: ModelVersion) -> Path:
    path = artefact_path(version, "model.xml", "model.onnx")
    if path.suffix == ".xml":
        inside(version, path.with_suffix(".bin").name, f"the weights of {path.name},")
    return path


def _precision(version: ModelVersion) -> str:
    written = parameter(version, _PRECISION) or PRECISIONS[0]
    if written not in PRECISIONS:
        refuse(
            version,
            f"parameter {_PRECISION} is '{written:.80}'; it must be one of {', '.join(PRECISIONS)}",
        )
    return written


def _read(version: ModelVersion, path: Path) -> Any:
    if path.suffix == ".xml" and not _is_xml(path):
        # OpenVINO goes by the content and would hand the file to a reader of another format.
        refuse(version, f"{path.name} is not an OpenVINO model: it has no <net> element")
    try:
        return ov.Core().read_model(path)
    except (RuntimeError, UnicodeDecodeError) as error:
        refuse(version, f"{path.name} is not a model that OpenVINO reads: {_cause(error)}")


def _is_xml(path: Path) -> bool:
    with path.open("rb") as file:
        return _XML_MARK in file.read(_LARGEST_HEAD_BYTES)


def _cause(error: Exception) -> str:
    """OpenVINO's message without the files and lines of its own source."""
    lines = [line.strip() for line in str(error).splitlines()]
    said = [line for line in lines if line and not line.startswith("Exception from ")]
    text = " ".join(said) or str(error)
    before, failed, after = text.partition(" failed at ")
    return after.partition(": ")[2] or before if failed else text


def _artefact(path: Path, model: Any) -> Artefact:
    inputs = tuple(_describe(port, f"input_{at}") for at, port in enumerate(model.inputs))
    outputs = tuple(_describe(port, f"output_{at}") for at, port in enumerate(model.outputs))
    most = [port.partial_shape[0].max_length for port in model.inputs if _has_rows(port)]
    return Artefact(path.name, inputs, outputs, max_rows=max(0, min(most, default=0)))


def _has_rows(port: Any) -> bool:
    shape = port.partial_shape
    return bool(shape.rank.is_static and len(shape) and shape[0].is_dynamic)


def _describe(port: Any, otherwise: str) -> TensorDescription:
    kind = port.element_type.get_type_name()
    problem = "" if kind in TYPES else f"has type {kind}, which this backend does not pass on"
    shape = None
    if port.partial_shape.rank.is_static:
        shape = tuple(-1 if dim.is_dynamic else dim.get_length() for dim in port.partial_shape)
    data_type = TYPES.get(kind, pb.TYPE_INVALID)
    return TensorDescription(name_of(port, otherwise), data_type, shape, problem=problem)


def name_of(port: Any, otherwise: str) -> str:
    """A port's name; `otherwise` for one without, which OpenVINO allows."""
    return str(port.any_name) if port.names else otherwise


class OpenVinoInstance(StackedInstance):
    """One thread's infer request of the shared compiled model."""

    def __init__(self, version: ModelVersion, device: Device, compiled: Any) -> None:
        super().__init__(version, "cpu", device.threads)
        self._request = compiled.create_infer_request()
        self._inputs = {name_of(one, f"input_{at}"): one for at, one in enumerate(compiled.inputs)}
        self._outputs = {
            name_of(one, f"output_{at}"): one for at, one in enumerate(compiled.outputs)
        }

    def close(self) -> None:
        super().close()
        del self._request, self._inputs, self._outputs  # frees the weights

    def run(self, inputs: Tensors, outputs: tuple[str, ...]) -> Mapping[str, Array]:
        # Measured for two inputs of [3,2]: 26 µs by tensors, 58 µs by a dict of arrays. The
        # request's outputs are overwritten by its next run, so they are copied.
        request = self._request
        held = {name: _writable(array) for name, array in inputs.items()}
        try:
            for name, array in held.items():
                request.set_tensor(self._inputs[name], ov.Tensor(array, shared_memory=True))
            request.infer()
            return {
                name: np.array(request.get_tensor(self._outputs[name]).data) for name in outputs
            }
        except RuntimeError as error:
            raise ExecutionFailed(f"{self._where}: openvino: {_cause(error)}") from error


def _writable(array: Array) -> Array:
    """The array as OpenVINO shares it; what was received is read-only, and copied."""
    flags = array.flags
    return array if flags.writeable and flags.c_contiguous else array.copy()

"""ONNX Runtime: one session per model and device, shared by its instances.

`session.run` releases the GIL and may be called from several threads at once; with one intra-op
thread, the calling thread computes.
"""

import ctypes
import re
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import onnxruntime as ort
from onnxruntime.capi import onnxruntime_pybind11_state as ort_state

from backends.artefact import artefact_path, complete_config, name_file, refuse
from backends.errors import ExecutionFailed
from backends.onnx.bounded import is_bounded
from backends.onnx.options import computes_alone, providers, run_options, session_options
from backends.ragged import RaggedInstance, is_ragged
from backends.seam import Device, LoadedInstances, Tensors
from backends.stacked import StackedInstance
from repository.config.tensors import BY_NAME, Array
from repository.model import ModelConfig, ModelVersion

BF16 = BY_NAME["BF16"].dtype
_ONNX_BFLOAT16 = 16

# ORT's exceptions have no base of their own; its Python layer adds ValueError and RuntimeError.
ORT_ERRORS: tuple[type[Exception], ...] = (
    *(
        kind
        for kind in vars(ort_state).values()
        if isinstance(kind, type) and issubclass(kind, Exception)
    ),
    RuntimeError,
    ValueError,
)


class OnnxRuntime:
    """The backend `onnxruntime`: model.onnx, on the CPU or CUDA execution provider."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ModelConfig:
        """See `backends.seam.Backend`; reads the graph's inputs and outputs, runs nothing."""
        from backends.onnx.complete import read_artefact

        path = _model_file(version)
        artefact = read_artefact(version, path)
        config = complete_config(version, "onnxruntime", artefact, default_max_batch)
        name_file(config, path.name)
        return config

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        """One session shared by `count` instances. Raises LoadFailed in ORT's own words."""
        path = _model_file(version)
        options = session_options(version, device)
        usable = providers(version, device)
        try:
            session = ort.InferenceSession(path, options, providers=usable)
        except ORT_ERRORS as error:
            refuse(version, f"onnxruntime cannot load {path.name}: {_cause(error)}")
        if session.get_providers()[0] != _name(usable[0]):
            refuse(
                version,
                f"onnxruntime could not start {_name(usable[0])} on {device.kind}:{device.index} "
                "and would have fallen back to the CPU; check the driver and the CUDA libraries",
            )
        kind = RaggedOnnxInstance if is_ragged(version.config) else OnnxInstance
        instances = [kind(version, device, session) for _ in range(count)]
        if device.kind == "cpu" and computes_alone(options) and is_bounded(version.config, path):
            for instance in instances:
                instance.loop_safe = True
        return LoadedInstances(instances, version.config)


def _model_file(version: ModelVersion) -> Path:
    path = artefact_path(version, "model.onnx")
    return path / path.name if path.is_dir() else path


def _name(provider: str | tuple[str, dict[str, str]]) -> str:
    return provider if isinstance(provider, str) else provider[0]


def _cause(error: Exception) -> str:
    """ORT's message without its prefix: "[ONNXRuntimeError] : 1 : FAIL : "."""
    text = str(error)
    if text.startswith("[ONNXRuntimeError]"):
        text = text.split(" : ", 3)[-1]
    _, _, after = text.partition(" failed:")
    text = after if text.startswith("Load model from ") and after else text
    return " ".join(_without_source(text).split())


_SOURCE = re.compile(r"(?:^|(?<=\s))/\S+\.(?:h|hpp|cc|cpp|cu|cuh):\d+ ")


def _without_source(text: str) -> str:
    """A message of ORT's without the file, line and C++ signature of the function it comes from."""
    while match := _SOURCE.search(text):
        rest = text[match.end() :]
        text = text[: match.start()] + rest[_signature_end(rest) :].removeprefix(" const").lstrip()
    return text


def _signature_end(text: str) -> int:
    """Behind the parameters of the function that `text` begins with; 0 where there is none."""
    depth = 0
    for index, char in enumerate(text):
        depth += (char == "(") - (char == ")")
        if char == ")" and depth <= 0:
            return index + 1
    return 0


class OnnxInstance(StackedInstance):
    """One thread's way into the shared session."""

    loop_safe = False

    def __init__(self, version: ModelVersion, device: Device, session: ort.InferenceSession):
        on_cpu = device.kind == "cpu"
        name = "cpu" if on_cpu else f"cuda:{device.index}"
        super().__init__(version, name, device.threads if on_cpu else 0)
        self._session = session
        self._options = run_options(version, device)
        types = {tensor.name: tensor.type for tensor in session.get_inputs()}
        types.update((tensor.name, tensor.type) for tensor in session.get_outputs())
        self._strings = frozenset(name for name, kind in types.items() if "(string)" in kind)
        self._bfloat16 = any("(bfloat16)" in kind for kind in types.values())
        self._scalars = tuple(
            tensor.name
            for tensor in session.get_inputs()
            if tensor.shape == [] and "tensor" in tensor.type
        )

    def close(self) -> None:
        super().close()
        del self._session  # the last instance to let go of it frees the weights

    def run(self, inputs: Tensors, names: tuple[str, ...]) -> Mapping[str, Array]:
        if self._strings or self._scalars:
            inputs = self._adapted(inputs)
        compute: Callable[[Tensors, tuple[str, ...]], list[Array]]
        compute = self._run_as_values if self._bfloat16 else self._run
        try:
            outputs = compute(inputs, names)
        except ORT_ERRORS as error:
            raise ExecutionFailed(f"{self._where}: onnxruntime: {_cause(error)}") from error
        if self._strings:
            outputs = [_encoded(array) if array.dtype == object else array for array in outputs]
        return dict(zip(names, outputs, strict=True))

    def _run(self, inputs: Tensors, names: tuple[str, ...]) -> list[Array]:
        # Measured per call on a CPU, FP32 [1,16]: run 3.5 µs, I/O binding 5.9, OrtValues 32; with
        # 4.8 MB in and out, 352 µs against 402: binding saves no copy here, so nothing is bound.
        outputs: list[Array] = self._session.run(names, inputs, self._options)
        return outputs

    def _run_as_values(self, inputs: Tensors, outputs: tuple[str, ...]) -> list[Array]:
        """As `_run`, for graphs with BF16, which ORT does not exchange with numpy."""
        feeds = {name: _to_value(array) for name, array in inputs.items()}
        values = self._session.run_with_ort_values(outputs, feeds, self._options)
        return [_from_value(value) for value in values]

    def _adapted(self, inputs: Tensors) -> dict[str, Array]:
        return {
            name: self._decoded(name, array)
            if name in self._strings
            else array.reshape(())
            if name in self._scalars
            else array
            for name, array in inputs.items()
        }

    def _decoded(self, name: str, array: Array) -> Array:
        """BYTES as ORT takes them: str. Raises ExecutionFailed naming what is not UTF-8."""
        text = np.empty(array.size, np.object_)
        for index, element in enumerate(array.flat):
            try:
                text[index] = element.decode()
            except UnicodeDecodeError as error:
                raise ExecutionFailed(
                    f"{self._where}: element {index} of input '{name}' is not UTF-8 "
                    f"({error.reason} at byte {error.start}); onnxruntime's strings must be"
                ) from error
        return text.reshape(() if name in self._scalars else array.shape)


class RaggedOnnxInstance(OnnxInstance, RaggedInstance):
    """One whose batches are ragged."""


def _encoded(array: Array) -> Array:
    """ORT's str elements as the BYTES they are on the wire."""
    encoded = np.empty(array.size, np.object_)
    encoded[:] = [element.encode() for element in array.flat]
    return encoded.reshape(array.shape)


def _to_value(array: Array) -> ort.OrtValue:
    if array.dtype == BF16:
        bits = np.ascontiguousarray(array).view(np.uint16)
        return ort.OrtValue.ortvalue_from_numpy_with_onnx_type(bits, _ONNX_BFLOAT16)
    return ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array))


def _from_value(value: ort.OrtValue) -> Array:
    """The value as an array of our own: bit by bit for BF16."""
    if value.data_type() != "tensor(bfloat16)":
        array: Array = value.numpy()
        return array
    data = ctypes.string_at(value.data_ptr(), value.tensor_size_in_bytes())
    return np.frombuffer(data, BF16).reshape(value.shape())

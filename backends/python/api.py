"""What python models import as `triton_python_backend_utils`: tensors, requests, responses.

Names and meanings are Triton's (its `python_backend`); `backends.python.backend` makes this module
importable under Triton's name in the worker. BLS (`exec`) and metrics do not exist here yet.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from queue import SimpleQueue
from typing import Any, Protocol

import ml_dtypes
import numpy as np

from backends.python.config import Config, ModelConfig
from backends.python.logger import Logger
from repository.config.tensors import BY_CONFIG, BY_DTYPE, DATA_TYPES, Array

__all__ = [
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
    "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START",
    "TRITONSERVER_RESPONSE_COMPLETE_FINAL",
    "TRITON_STRING_TO_NUMPY",
    "InferenceRequest",
    "InferenceResponse",
    "Logger",
    "ModelConfig",
    "Tensor",
    "TritonError",
    "TritonModelException",
    "get_input_config_by_name",
    "get_input_tensor_by_name",
    "get_output_config_by_name",
    "get_output_tensor_by_name",
    "numpy_to_triton_type",
    "triton_string_to_numpy",
    "triton_to_numpy_type",
    "using_decoupled_model_transaction_policy",
]

TRITONSERVER_REQUEST_FLAG_SEQUENCE_START = 1
TRITONSERVER_REQUEST_FLAG_SEQUENCE_END = 2
TRITONSERVER_RESPONSE_COMPLETE_FINAL = 1

TRITON_STRING_TO_NUMPY: dict[str, Any] = {
    "TYPE_STRING" if row.name == "BYTES" else f"TYPE_{row.name}": row.dtype.type
    for row in DATA_TYPES
}

_DLPACK_CPU = (1, 0)


class TritonModelException(Exception):
    """Raised by, and to be raised in, python models."""

    def message(self) -> str:
        """The text."""
        return str(self)


class TritonError:
    """An error a model answers one request with: a text and one of eight codes."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7

    def __init__(self, message: str, code: int = INTERNAL) -> None:
        """Any other code than the eight stands for INTERNAL."""
        self._message = str(message)
        self._code = code if code in range(8) else self.INTERNAL

    def message(self) -> str:
        """The text."""
        return self._message

    def code(self) -> int:
        """One of the class's constants."""
        return self._code

    def __str__(self) -> str:
        return self._message


class Tensor:
    """A named array. BYTES tensors are object arrays of `bytes` (or `str`, sent as UTF-8)."""

    def __init__(self, name: str, numpy_array: Array) -> None:
        """Raises `TritonModelException` for a dtype the protocol does not have."""
        if not isinstance(numpy_array, np.ndarray):
            raise TritonModelException(
                f"Tensor '{name}' needs a numpy array, not {type(numpy_array).__name__}"
            )
        dtype = numpy_array.dtype
        if dtype.kind != "S" and dtype.newbyteorder("=") not in BY_DTYPE:
            raise TritonModelException(
                f"Tensor dtype '{dtype}' used for numpy_array of '{name}' is not supported. "
                "Use np.object_ for strings."
            )
        self._name = name
        self._array = numpy_array

    def name(self) -> str:
        """The tensor's name."""
        return self._name

    def as_numpy(self) -> Array:
        """The array itself, not a copy."""
        return self._array

    def shape(self) -> list[int]:
        """The array's shape."""
        return list(self._array.shape)

    def triton_dtype(self) -> int:
        """The data type's number in the config's `DataType`."""
        return numpy_to_triton_type(self._array.dtype)

    def is_cpu(self) -> bool:
        """Always true: tensors reach python models in main memory."""
        return True

    def to_dlpack(self) -> Any:
        """A DLPack capsule that shares the array's memory; not for BYTES."""
        return self.__dlpack__()

    @staticmethod
    def from_dlpack(name: str, tensor: Any) -> "Tensor":
        """A tensor from a DLPack capsule, or from anything with `__dlpack__`; what lies on a
        GPU, or is BF16, comes by way of torch."""
        source: Any = tensor if hasattr(tensor, "__dlpack__") else _Capsule(tensor)
        if hasattr(source, "detach") and (source.is_cuda or "bfloat16" in str(source.dtype)):
            return Tensor(name, _from_torch(source))
        try:
            return Tensor(name, np.from_dlpack(source))
        except (BufferError, RuntimeError, TypeError) as error:
            raise TritonModelException(f"Tensor '{name}' from DLPack: {error}") from error

    def __dlpack__(self, **wishes: Any) -> Any:
        if self._array.dtype.hasobject:
            raise TritonModelException(f"DLPack has no BYTES; '{self._name}' cannot be exported")
        if self._array.dtype == ml_dtypes.bfloat16:
            import torch

            bits = torch.from_numpy(self._array.view(np.int16))
            return bits.view(torch.bfloat16).__dlpack__()
        return self._array.__dlpack__(**wishes)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU


class _Capsule:
    """A bare DLPack capsule, dressed as numpy wants to meet one."""

    def __init__(self, capsule: Any) -> None:
        self._capsule = capsule

    def __dlpack__(self, **_wishes: Any) -> Any:
        return self._capsule

    def __dlpack_device__(self) -> tuple[int, int]:
        return _DLPACK_CPU


class ModelResponseSender(Protocol):
    """What a model answers one request with; see `backends.python.streams` for decoupled models,
    `backends.python.single` for others."""

    def send(self, response: "InferenceResponse | None" = None, flags: int = 0) -> None: ...
    def is_cancelled(self) -> bool: ...


class SentResponse:
    """What a model that is not decoupled has sent for one request; `ended`: it sends no more."""

    def __init__(self) -> None:
        self.response: InferenceResponse | None = None
        self.ended = False
        self._end: SimpleQueue[None] = SimpleQueue()

    def end(self) -> None:
        """Nothing more comes; from any thread, also from a destructor."""
        self.ended = True
        self._end.put(None)

    def wait(self) -> None:
        """Until `end`; for one waiter."""
        self._end.get()


class InferenceRequest:
    """One request of the batch a model is asked to execute."""

    def __init__(
        self,
        request_id: str = "",
        correlation_id: int | str = 0,
        inputs: Sequence[Tensor] = (),
        requested_output_names: Sequence[str] = (),
        model_name: str = "",
        model_version: int = -1,
        **facts: Any,
    ) -> None:
        """`facts`: `flags` (int), `timeout` (µs), `parameters` (a mapping), `cancelled` (a
        callable), `sender` (a `ModelResponseSender`), or `make_sender` (a callable that makes one
        when the model asks for it; then `sent` is what it sends)."""
        self._id = request_id
        self._correlation_id = correlation_id
        self._inputs = list(inputs)
        self._output_names = list(requested_output_names)
        self._model = (model_name, model_version)
        self._flags = int(facts.get("flags", 0))
        self._timeout_us = int(facts.get("timeout", 0))
        self._parameters: Mapping[str, Any] = facts.get("parameters") or {}
        self.cancelled: Callable[[], bool] | None = facts.get("cancelled")
        self.sent: SentResponse | None = None
        self._sender: ModelResponseSender | None = facts.get("sender")
        self._make_sender: MakeSender | None = facts.get("make_sender")

    def inputs(self) -> list[Tensor]:
        """The input tensors."""
        return self._inputs

    def request_id(self) -> str:
        """The client's id; empty when it gave none."""
        return self._id

    def correlation_id(self) -> int | str:
        """The sequence's id; 0 for none."""
        return self._correlation_id

    def requested_output_names(self) -> list[str]:
        """The outputs to return."""
        return self._output_names

    def parameters(self) -> str:
        """The request's custom parameters, as JSON text."""
        return json.dumps(dict(self._parameters))

    def timeout(self) -> int:
        """The client's timeout in µs; 0 for none."""
        return self._timeout_us

    def flags(self) -> int:
        """`TRITONSERVER_REQUEST_FLAG_*` bits."""
        return self._flags

    def set_flags(self, flags: int) -> None:
        """Replace the bits."""
        self._flags = flags

    def model_name(self) -> str:
        """The model asked."""
        return self._model[0]

    def model_version(self) -> int:
        """The version asked."""
        return self._model[1]

    def is_cancelled(self) -> bool:
        """Whether the client has gone, or has waited too long, and nobody reads the answer."""
        return self.cancelled is not None and self.cancelled()

    def get_response_sender(self) -> ModelResponseSender:
        """Where the model sends this request's responses, from any thread; the same each time. A
        decoupled model sends any number as long as it likes, another one exactly one, and returns
        None for it. Raises `TritonModelException` for a request the model made itself."""
        if self._sender is None:
            if self._make_sender is None:
                raise TritonModelException(
                    "only a request that came to execute has a response sender"
                )
            self.sent = SentResponse()
            self._sender = self._make_sender(self, self.sent)
        return self._sender


MakeSender = Callable[[InferenceRequest, SentResponse], ModelResponseSender]


class InferenceResponse:
    """What a model answers one request with: tensors, or an error."""

    def __init__(
        self,
        output_tensors: Sequence[Tensor] = (),
        error: TritonError | None = None,
        parameters: Mapping[str, Any] | None = None,
    ) -> None:
        if any(not isinstance(tensor, Tensor) for tensor in output_tensors):
            raise TritonModelException("output_tensors must be a list of pb_utils.Tensor")
        if error is not None and not isinstance(error, TritonError):
            raise TritonModelException("error must be a pb_utils.TritonError")
        self._tensors = list(output_tensors)
        self._error = error
        self.facts = _sendable(parameters or {})

    def output_tensors(self) -> list[Tensor]:
        """The tensors."""
        return self._tensors

    def has_error(self) -> bool:
        """Whether this is an error."""
        return self._error is not None

    def error(self) -> TritonError | None:
        """The error, if it is one."""
        return self._error

    def parameters(self) -> str:
        """The response's parameters, as JSON text."""
        return json.dumps(self.facts)


def _sendable(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """A copy; raises `TritonModelException` for what the protocol cannot carry."""
    for key, value in parameters.items():
        if not isinstance(key, str) or not isinstance(value, bool | int | float | str):
            raise TritonModelException(
                f"response parameter {key!r} is {value!r}; keys must be strings, values bool, "
                "int, float or str"
            )
    return dict(parameters)


def get_input_tensor_by_name(inference_request: InferenceRequest, name: str) -> Tensor | None:
    """The request's input of that name; None if it has none."""
    return _tensor(inference_request.inputs(), name)


def get_output_tensor_by_name(inference_response: InferenceResponse, name: str) -> Tensor | None:
    """The response's output of that name; None if it has none."""
    return _tensor(inference_response.output_tensors(), name)


def get_input_config_by_name(model_config: Config, name: str) -> Config | None:
    """The properties of an input in a config dictionary; None if it has none of that name."""
    return _config(model_config, "input", name)


def get_output_config_by_name(model_config: Config, name: str) -> Config | None:
    """The properties of an output in a config dictionary; None if it has none of that name."""
    return _config(model_config, "output", name)


def using_decoupled_model_transaction_policy(model_config: Config) -> bool:
    """Whether a config dictionary makes its model decoupled."""
    return bool(model_config.get("model_transaction_policy", {}).get("decoupled", False))


def triton_string_to_numpy(triton_type_string: str) -> Any:
    """The numpy type of a config's data type: "TYPE_FP32" → `np.float32`."""
    return TRITON_STRING_TO_NUMPY[triton_type_string]


def triton_to_numpy_type(data_type: int) -> Any:
    """The numpy type of a data type's number."""
    return BY_CONFIG[data_type].dtype.type


def numpy_to_triton_type(data_type: Any) -> int:
    """The number of a numpy type's data type. Raises `KeyError` when the protocol has none."""
    dtype = np.dtype(data_type)
    return BY_DTYPE[np.dtype(np.object_) if dtype.kind == "S" else dtype.newbyteorder("=")].config


def _tensor(tensors: Sequence[Tensor], name: str) -> Tensor | None:
    return next((tensor for tensor in tensors if tensor.name() == name), None)


def _config(model_config: Config, kind: str, name: str) -> Config | None:
    found: Config | None = next(
        (tensor for tensor in model_config.get(kind, ()) if tensor["name"] == name), None
    )
    return found


def _from_torch(tensor: Any) -> Array:
    import torch

    on_cpu = tensor.detach().cpu().contiguous()
    if on_cpu.dtype == torch.bfloat16:
        array: Array = on_cpu.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
        return array
    plain: Array = on_cpu.numpy()
    return plain

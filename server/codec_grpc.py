"""Between `inference.ModelInferRequest` and `InferRequest`, and back. Pure.

`server.grpc_door` and `server.grpc_stream` call `decode` on the way in and `encode` on the way
out. Tensors are views of the received bytes; answers always travel as raw contents. Source of the
texts: Triton's gRPC front end (`infer_handler.cc`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from repository.tensors import Array
from schedulers.request import NO_PARAMETERS, InferRequest, InferResponse
from server.admit import admit, bytes_array, check_input, element_count, refuse, tensor_from_bytes
from server.errors import InvalidRequest, Unsupported
from server.signature import Signature, TensorSpec

EMPTY_FINAL = "triton_enable_empty_final_response"
"""The only reserved parameter a client may send; it is the door's business, not the model's."""

_FIELDS: dict[str, tuple[str, Any]] = {
    "BOOL": ("bool_contents", np.bool_),
    "INT8": ("int_contents", np.int32),
    "INT16": ("int_contents", np.int32),
    "INT32": ("int_contents", np.int32),
    "INT64": ("int64_contents", np.int64),
    "UINT8": ("uint_contents", np.uint32),
    "UINT16": ("uint_contents", np.uint32),
    "UINT32": ("uint_contents", np.uint32),
    "UINT64": ("uint64_contents", np.uint64),
    "FP32": ("fp32_contents", np.float32),
    "FP64": ("fp64_contents", np.float64),
    "BYTES": ("bytes_contents", np.object_),
}
"""Where typed contents of a data type travel, and as what; FP16 and BF16 only travel raw."""

_TYPE_OF_FIELD = {
    "bool_contents": "BOOL",
    "int_contents": "INT32",
    "int64_contents": "INT64",
    "uint_contents": "UINT32",
    "uint64_contents": "UINT64",
    "fp32_contents": "FP32",
    "fp64_contents": "FP64",
    "bytes_contents": "BYTES",
}

_CHOICES: dict[str, tuple[str, ...]] = {
    "sequence_id": ("int64_param", "string_param"),
    "sequence_start": ("bool_param",),
    "sequence_end": ("bool_param",),
    "priority": ("int64_param", "uint64_param"),
    "timeout": ("int64_param",),
    EMPTY_FINAL: ("bool_param",),
}
"""The types Triton takes for the parameters that have a meaning of their own."""


def decode(message: pb.ModelInferRequest, signature: Signature, arrived_ns: int) -> InferRequest:
    """The admitted request. Its arrays keep the received bytes alive and are read-only views.

    `arrived_ns` is on `time.monotonic_ns`. Raises InvalidRequest in Triton's words; Unsupported
    for tensors in shared memory and for classification.
    """
    request_id = message.id
    raw = message.raw_input_contents
    inputs: dict[str, Array] = {}
    for position, tensor in enumerate(message.inputs):
        name, shape = tensor.name, tuple(tensor.shape)
        spec = check_input(signature, request_id, name, tensor.datatype, shape)
        if name in inputs:
            refuse(request_id, f"input '{name}' already exists in request")
        if tensor.parameters:
            _refuse_shared_memory("input", tensor)
        buffer = raw[position] if position < len(raw) else None
        if buffer is None or tensor.HasField("contents"):
            inputs[name] = _typed(signature, request_id, spec, tensor, bool(raw))
        else:
            inputs[name] = tensor_from_bytes(signature, request_id, spec, shape, buffer)
    if len(raw) > len(inputs):
        refuse(request_id, f"unexpected additional input data for model '{signature.model}'")
    wanted = _wanted(request_id, message.outputs) if message.outputs else ()
    parameters = _parameters(message.parameters) if message.parameters else NO_PARAMETERS
    return admit(signature, inputs, arrived_ns, request_id, wanted, parameters)


def _typed(
    signature: Signature,
    request_id: str,
    spec: TensorSpec,
    tensor: pb.ModelInferRequest.InferInputTensor,
    has_raw: bool,
) -> Array:
    """The tensor from its typed `contents`; small integers are cut to their low bytes."""
    where = f"'{spec.name}' for model '{signature.model}'"
    if has_raw and tensor.HasField("contents"):
        refuse(
            request_id,
            f"contents field must not be specified when using raw_input_contents for {where}",
        )
    if not tensor.HasField("contents"):
        refuse(request_id, f"unable to find data for input tensor {where} in request.")
    field, kind = _FIELDS.get(spec.datatype, ("", np.void))
    values: Sequence[Any] = ()
    for descriptor, found in tensor.contents.ListFields():
        if descriptor.name != field:
            refuse(
                request_id,
                f"unexpected explicit tensor data for input tensor {where} of type "
                f"'{_TYPE_OF_FIELD[descriptor.name]}', expected datatype '{spec.datatype}'",
            )
        values = found
    if spec.itemsize == 0:
        return _strings(signature, request_id, spec, tuple(tensor.shape), values)
    array = np.array(values, kind).astype(spec.dtype, copy=False)
    octets = array.view(np.uint8)
    return tensor_from_bytes(signature, request_id, spec, tuple(tensor.shape), octets)


def _strings(
    signature: Signature,
    request_id: str,
    spec: TensorSpec,
    shape: tuple[int, ...],
    values: Sequence[bytes],
) -> Array:
    expected = element_count(shape)
    if len(values) != expected:
        refuse(
            request_id,
            f"expected {expected} string elements for inference input '{spec.name}' "
            f"for model '{signature.model}', got {len(values)}",
        )
    return bytes_array(values, shape)


def _wanted(request_id: str, outputs: Sequence[Any]) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for output in outputs:
        if output.name in names:
            refuse(request_id, f"output '{output.name}' already exists in request")
        if output.parameters:
            _refuse_shared_memory("output", output)
            if "classification" in output.parameters:
                raise Unsupported(
                    f"classification of output '{output.name}' is not offered by this server; "
                    "ask for the output itself"
                )
        names[output.name] = None
    return tuple(names)


def _refuse_shared_memory(kind: str, tensor: Any) -> None:
    if any(key.startswith("shared_memory_") for key in tensor.parameters):
        raise Unsupported(
            f"shared memory for {kind} '{tensor.name}' is not offered by this server; "
            "send and receive tensors as raw contents"
        )


def _parameters(message: Mapping[str, pb.InferParameter]) -> dict[str, Any]:
    parameters: dict[str, Any] = {}
    for key, value in message.items():
        choice = value.WhichOneof("parameter_choice")
        allowed = _CHOICES.get(key)
        if choice is None or (allowed and choice not in allowed):
            expected = " or ".join(allowed or ("bool_param", "int64_param", "string_param"))
            raise InvalidRequest(f"invalid value type for '{key}' parameter, expected {expected}.")
        if key.startswith("triton_"):
            if key != EMPTY_FINAL:
                raise InvalidRequest(
                    "parameter keys starting with 'triton_' are reserved for Triton usage. Only "
                    f"the following keys starting with 'triton_' are allowed: {EMPTY_FINAL}"
                )
            continue
        parameters[key] = getattr(value, choice)
    if parameters.get("priority", 0) < 0:
        raise InvalidRequest("invalid value for 'priority', expected value >= 0.")
    return parameters


def encode(response: InferResponse, signature: Signature) -> pb.ModelInferResponse:
    """The wire's form of a response: outputs in the response's order, contents always raw."""
    message = pb.ModelInferResponse(
        model_name=response.model, model_version=str(response.version), id=response.id
    )
    fill(message, response, signature)
    return message


def fill(message: pb.ModelInferResponse, response: InferResponse, signature: Signature) -> None:
    """Add outputs and parameters to a message that already says who answers."""
    specs, outputs, raw = signature.outputs, message.outputs, message.raw_output_contents
    for name, array in response.outputs.items():
        spec = specs[name]
        outputs.add(name=name, datatype=spec.datatype, shape=array.shape)
        raw.append(array.tobytes() if spec.itemsize else _packed(array))
    if response.parameters:
        for key, value in response.parameters.items():
            set_parameter(message.parameters[key], value)


def _packed(array: Array) -> bytes:
    """BYTES elements, each behind its length (uint32, little-endian), in row-major order."""
    parts: list[bytes] = []
    for element in array.ravel().tolist():
        parts.append(len(element).to_bytes(4, "little"))
        parts.append(element)
    return b"".join(parts)


def set_parameter(message: pb.InferParameter, value: object) -> None:
    """Write a bool, int, float or string; anything else as its text."""
    for kind, write in _WRITERS:
        if isinstance(value, kind):
            write(message, value)
            return
    message.string_param = str(value)


def _write_int(message: pb.InferParameter, value: int) -> None:
    if value >= 1 << 63:
        message.uint64_param = value
    else:
        message.int64_param = value


_WRITERS: tuple[tuple[type, Callable[[pb.InferParameter, Any], None]], ...] = (
    (bool, lambda message, value: setattr(message, "bool_param", value)),
    (int, _write_int),
    (float, lambda message, value: setattr(message, "double_param", value)),
)

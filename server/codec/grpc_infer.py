"""From `inference.ModelInferRequest` to InferBody, and from InferResponse back. Pure, but for
shared memory.

`server.grpc.unary` and `server.grpc.stream` call `decode` on the way in and `encode` on the way
out. Tensors are views of the received bytes; answers always travel as raw contents. Source of the
texts: Triton's gRPC front end (`infer_handler.cc`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from tritonclient.grpc import service_pb2 as pb

from repository.config.tensors import Array
from schedulers.request import NO_PARAMETERS, InferResponse
from schedulers.request import Sequence as SequenceKey
from server.admit import (
    admit,
    bytes_array,
    check_counts,
    check_input,
    element_count,
    refuse,
    sequence_in,
    tensor_from_bytes,
)
from server.codec.classification import TopClasses, classified, top
from server.codec.octets import octets
from server.codec.output_format import PLAIN, InferBody, OutputFormat
from server.codec.shared_memory_parameters import place_in_message
from server.errors import InvalidRequest
from server.shared_memory.regions import DISALLOWED, RegionSlice, SharedMemory
from server.signature import Signature, TensorSpec

EMPTY_FINAL = "triton_enable_empty_final_response"
"""The only reserved parameter a client may send; it concerns the front end, not the model."""

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

_OF_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")


def decode(
    message: pb.ModelInferRequest,
    signature: Signature,
    shared: SharedMemory = DISALLOWED,
) -> InferBody:
    """The request in `message`. Its arrays keep the received bytes alive and are read-only views.

    Tensors may lie in `shared` memory. Raises InvalidRequest in Triton's words, and what
    `SharedMemory.place` raises.
    """
    request_id = message.id
    raw = message.raw_input_contents
    check_counts(
        signature, request_id, len(message.inputs), len(message.outputs), len(message.parameters)
    )
    inputs: dict[str, Array] = {}
    taken = strings = 0
    for tensor in message.inputs:
        name, shape = tensor.name, tuple(tensor.shape)
        spec = check_input(signature, request_id, name, tensor.datatype, shape, strings)
        if name in inputs:
            refuse(request_id, f"input '{name}' already exists in request")
        place = place_in_message(shared, name, tensor.parameters) if tensor.parameters else None
        if place is not None:
            found = _in_place(signature, request_id, tensor, place)
            inputs[name] = tensor_from_bytes(signature, request_id, spec, shape, found)
        elif taken >= len(raw) or tensor.HasField("contents"):
            inputs[name] = _typed(signature, request_id, spec, tensor, bool(raw))
        else:
            inputs[name] = tensor_from_bytes(signature, request_id, spec, shape, raw[taken])
            taken += 1
        if not spec.itemsize:
            strings += inputs[name].size
    if len(raw) > taken:
        refuse(request_id, f"unexpected additional input data for model '{signature.model}'")
    outputs, form = _outputs(signature, request_id, message.outputs, shared)
    parameters = _parameters(message.parameters) if message.parameters else NO_PARAMETERS
    rows, key = admit(signature, inputs, request_id, outputs)
    return InferBody(request_id, inputs, rows, key, outputs, parameters, form)


def sequence_of(message: pb.ModelInferRequest) -> SequenceKey | None:
    """The sequence it belongs to, before anything is checked."""
    if "sequence_id" not in message.parameters:
        return None
    return sequence_in({name: parameter_of(message, name) for name in _OF_SEQUENCE})


def parameter_of(message: pb.ModelInferRequest, name: str) -> Any:
    """One of its parameters, None where there is none of that name."""
    if name not in message.parameters:  # looking one up would make it
        return None
    found = message.parameters[name]
    choice = found.WhichOneof("parameter_choice")
    return getattr(found, choice) if choice else None


def _in_place(
    signature: Signature,
    request_id: str,
    tensor: pb.ModelInferRequest.InferInputTensor,
    place: RegionSlice,
) -> memoryview:
    if tensor.HasField("contents"):
        refuse(
            request_id,
            "unexpected 'content' provided when using shared memory for input tensor "
            f"'{tensor.name}' for model '{signature.model}'",
        )
    return place.read()


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
    field, kind = _FIELDS.get(spec.datatype, ("", np.bool_))
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
    array = np.fromiter(values, kind, len(values)).astype(spec.dtype, copy=False)
    return tensor_from_bytes(signature, request_id, spec, tuple(tensor.shape), array.view(np.uint8))


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


def _outputs(
    signature: Signature, request_id: str, outputs: Sequence[Any], shared: SharedMemory
) -> tuple[tuple[str, ...], OutputFormat]:
    if not outputs:
        return (), PLAIN
    names: dict[str, None] = {}
    tops: dict[str, TopClasses] = {}
    places: dict[str, RegionSlice] = {}
    for output in outputs:
        if output.name in names:
            refuse(request_id, f"output '{output.name}' already exists in request")
        if output.parameters:
            if place := place_in_message(shared, output.name, output.parameters):
                places[output.name] = place
            if "classification" in output.parameters:
                count = _class_count(output.parameters["classification"])
                tops[output.name] = top(signature, output.name, count)
        names[output.name] = None
    return tuple(names), OutputFormat(tops=tops, places=places) if tops or places else PLAIN


def _class_count(parameter: pb.InferParameter) -> int:
    if parameter.WhichOneof("parameter_choice") != "int64_param":
        raise InvalidRequest(
            "invalid value type for 'classification' parameter, expected int64_param"
        )
    if parameter.int64_param <= 0:
        raise InvalidRequest("invalid value for 'classification' parameter, expected >= 0")
    count: int = parameter.int64_param
    return count


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


def encode(
    response: InferResponse, signature: Signature, form: OutputFormat = PLAIN
) -> pb.ModelInferResponse:
    """The wire's form of a response: outputs in the response's order, contents always raw."""
    message = pb.ModelInferResponse(
        model_name=response.model, model_version=str(response.version), id=response.id
    )
    fill(message, response, signature, form)
    return message


def fill(
    message: pb.ModelInferResponse,
    response: InferResponse,
    signature: Signature,
    form: OutputFormat = PLAIN,
) -> None:
    """Add outputs and parameters to a message that already says who answers.

    Outputs with a place in shared memory are written there, and their contents are empty.
    Raises InvalidRequest when they do not fit.
    """
    if form.tops:
        response = classified(response, form.tops)
    specs, outputs, raw = signature.outputs, message.outputs, message.raw_output_contents
    for name, array in response.outputs.items():
        is_text = array.dtype.hasobject
        datatype = "BYTES" if is_text else specs[name].datatype
        outputs.add(name=name, datatype=datatype, shape=array.shape)
        if form.places and name in form.places:
            form.places[name].write(octets(array))
            raw.append(b"")
        else:
            raw.append(octets(array) if is_text else array.tobytes())
    if response.parameters:
        for key, value in response.parameters.items():
            set_parameter(message.parameters[key], value)


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

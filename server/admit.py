"""Admit: hold a decoded body against the model's signature; refuse early, in Triton's words.

The codecs of `server.codec` call `check_input` per tensor and `admit` once; `server.dataplane`
makes the InferRequest of what they decoded. Source of the texts: Triton's core
(`infer_request.cc`).
"""

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NamedTuple, NoReturn

import numpy as np

from repository.config.tensors import Array
from schedulers.request import NO_PARAMETERS
from schedulers.request import Sequence as SequenceKey
from server.errors import InvalidRequest
from server.signature import Signature, TensorSpec

_BATCH_NOTE = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be "
    "prepended to each input shape. If you want to specify the full shape including the batch dim "
    "in your input dims config, try setting max_batch_size to zero. See the model configuration "
    "docs for more info on max_batch_size."
)


MOST_STRINGS = 1 << 18
"""BYTES elements one request may have. They are unpacked one by one on the event loop, about 1 µs
each, and an empty one is 4 bytes on the wire: the limit on a body's bytes is none on them."""

MOST_TENSORS = 4096
"""Inputs, and requested outputs, that one request may name, unless its model has more."""

MOST_PARAMETERS = 1024
"""Parameters one request may have."""

_POINTER_BYTES = 8
"""An element of a BYTES array, beside its bytes."""


def refuse(request_id: str, message: str) -> NoReturn:
    """Raise InvalidRequest with Triton's request-id prefix."""
    raise InvalidRequest(f"[request id: {request_id or '<id_unknown>'}] {message}")


def check_counts(
    signature: Signature, request_id: str, inputs: int, outputs: int, parameters: int
) -> None:
    """Refuse a request that names more than any model has, before any of it is looked at."""
    if inputs > MOST_TENSORS or outputs > MOST_TENSORS or parameters > MOST_PARAMETERS:
        _refuse_counts(signature, request_id, inputs, outputs, parameters)


def _refuse_counts(
    signature: Signature, request_id: str, inputs: int, outputs: int, parameters: int
) -> None:
    for count, what, has in (
        (inputs, "inputs", len(signature.inputs)),
        (outputs, "requested outputs", len(signature.outputs)),
        (parameters, "parameters", None),
    ):
        most = MOST_PARAMETERS if has is None else max(MOST_TENSORS, has)
        if count > most:
            model_has = "" if has is None else f"; the model has {has}"
            refuse(
                request_id,
                f"inference request for model '{signature.model}' has {count} {what}, more than "
                f"the maximum of {most}{model_has}",
            )


def check_input(
    signature: Signature,
    request_id: str,
    name: str,
    datatype: str,
    shape: Sequence[int],
    strings_before: int = 0,
) -> TensorSpec:
    """The input's spec, if the name, data type and shape are what the model takes, and it has not
    too many BYTES elements beside the `strings_before` of the inputs before it."""
    spec = signature.inputs.get(name)
    model = signature.model
    if spec is None:
        refuse(request_id, f"unexpected inference input '{name}' for model '{model}'")
    if datatype != spec.datatype:
        refuse(
            request_id,
            f"inference input '{name}' data-type is '{datatype}', "
            f"but model '{model}' expects '{spec.datatype}'",
        )
    inner = tuple(shape[1:]) if signature.max_batch else tuple(shape)
    if inner != spec.fixed or (signature.max_batch and not shape):
        _check_shape(signature, request_id, spec, tuple(shape))
    if not spec.itemsize:
        check_strings(signature, request_id, spec, element_count(shape), strings_before)
    return spec


def check_strings(
    signature: Signature, request_id: str, spec: TensorSpec, count: int, before: int
) -> None:
    """Refuse an input of `count` BYTES elements that are too many with the `before` of others."""
    total = count + before
    if total > MOST_STRINGS:
        refuse(
            request_id,
            f"too many string elements for inference input '{spec.name}' for model "
            f"'{signature.model}': {total} with those of the inputs before it, and a request may "
            f"have {MOST_STRINGS}; split it into smaller ones",
        )


def _check_shape(
    signature: Signature, request_id: str, spec: TensorSpec, shape: tuple[int, ...]
) -> None:
    full = spec.full_dims
    if len(shape) == len(full) and all(
        got >= 0 and want in (-1, got) for want, got in zip(full, shape, strict=True)
    ):
        _check_size(signature, request_id, spec, shape)
        return
    refuse(
        request_id,
        f"unexpected shape for input '{spec.name}' for model '{signature.model}'. "
        f"Expected {_brackets(full)}, got {_brackets(shape)}. "
        + (_BATCH_NOTE if signature.max_batch else ""),
    )


def _check_size(
    signature: Signature, request_id: str, spec: TensorSpec, shape: tuple[int, ...]
) -> None:
    """An array of numpy counts its bytes in 63 bits, and dimensions of 0 among them as 1."""
    if prod(max(dim, 1) for dim in shape) * (spec.itemsize or _POINTER_BYTES) >= 1 << 63:
        refuse(
            request_id,
            f"shape {_brackets(shape)} for input '{spec.name}' for model '{signature.model}' is "
            "too large: no array can have so many elements",
        )


_MOST_DIMS_SHOWN = 64


def _brackets(dims: Sequence[int]) -> str:
    more = [f"... {len(dims)} dimensions"] if len(dims) > _MOST_DIMS_SHOWN else []
    return "[" + ",".join([*map(str, dims[:_MOST_DIMS_SHOWN]), *more]) + "]"


def element_count(shape: Sequence[int]) -> int:
    count = 1
    for dim in shape:
        count *= dim
    return count


def tensor_from_bytes(
    signature: Signature, request_id: str, spec: TensorSpec, shape: Sequence[int], buffer: Any
) -> Array:
    """A read-only view of `buffer` (bytes or memoryview) as the tensor; BYTES are unpacked.

    Raises InvalidRequest when the byte size does not fit the shape.
    """
    if spec.itemsize == 0:
        return _bytes_tensor(signature, request_id, spec, shape, buffer)
    expected = element_count(shape) * spec.itemsize
    if len(buffer) != expected:
        refuse(
            request_id,
            f"input byte size mismatch for input '{spec.name}' for model '{signature.model}'. "
            f"Expected {expected}, got {len(buffer)}",
        )
    return np.frombuffer(buffer, spec.dtype).reshape(shape)


def _bytes_tensor(
    signature: Signature, request_id: str, spec: TensorSpec, shape: Sequence[int], buffer: Any
) -> Array:
    where = f"for inference input '{spec.name}' for model '{signature.model}'"
    expected = element_count(shape)
    elements: list[bytes] = []
    position, size = 0, len(buffer)
    while position < size:
        if size - position < 4:
            refuse(request_id, f"incomplete string length indicator {where}, expecting 4 bytes")
        length = int.from_bytes(buffer[position : position + 4], "little")
        position += 4
        if length > size - position:
            refuse(
                request_id,
                f"incomplete string data {where}, expecting string of length {length} bytes "
                f"but only {size - position} bytes available",
            )
        if len(elements) >= expected:
            refuse(
                request_id,
                f"unexpected number of string elements {expected + 1} {where}, "
                f"expecting {expected}",
            )
        elements.append(bytes(buffer[position : position + length]))
        position += length
    if len(elements) != expected:
        refuse(request_id, f"expected {expected} string elements {where}, got {len(elements)}")
    return bytes_array(elements, shape)


def bytes_array(elements: Sequence[bytes], shape: Sequence[int]) -> Array:
    """An object array of `bytes`, whatever the elements' lengths."""
    array = np.empty(len(elements), np.object_)
    array[:] = elements
    return array.reshape(shape)


def admit(
    signature: Signature,
    inputs: Mapping[str, Array],
    request_id: str = "",
    outputs: tuple[str, ...] = (),
) -> tuple[int, object]:
    """Refuse a request that is not complete, has several batch sizes, or wants outputs that do not
    exist. `inputs` are arrays that passed `check_input`. Returns `rows` and `shape_key` as of
    `InferRequest`.
    """
    if inputs.keys() != signature.inputs.keys():
        _check_complete(signature, request_id, inputs)
    for name in outputs:
        if name not in signature.outputs:
            refuse(
                request_id,
                f"unexpected inference output '{name}' for model '{signature.model}'",
            )
    return _rows_and_key(signature, request_id, inputs)


def _rows_and_key(
    signature: Signature, request_id: str, inputs: Mapping[str, Array]
) -> tuple[int, object]:
    if not signature.max_batch:
        return 1, None
    rows = -1
    key: list[object] = []
    for name, spec in signature.inputs.items():
        array = inputs.get(name)
        if array is None:
            continue
        if array.shape[0] != rows:
            if rows >= 0:
                refuse(
                    request_id,
                    f"input '{name}' batch size does not match other inputs for "
                    f"'{signature.model}'",
                )
            rows = array.shape[0]
        if spec.fixed is None and not spec.ragged:
            key.append((name, array.shape[1:]))
    if rows > signature.max_batch:
        refuse(
            request_id,
            f"inference request batch-size must be <= {signature.max_batch} "
            f"for '{signature.model}'",
        )
    if rows == 0:
        refuse(request_id, f"inference request batch-size must be >= 1 for '{signature.model}'")
    if len(inputs) != len(signature.inputs):
        key.append(frozenset(inputs))
    return max(rows, 1), tuple(key) if key else None


def _check_complete(signature: Signature, request_id: str, inputs: Mapping[str, Array]) -> None:
    missing = signature.required - inputs.keys()
    if not missing:
        return
    total, required = len(signature.inputs), len(signature.required)
    counts = (
        f"expected {total} inputs"
        if total == required
        else f"expected number of inputs between {required} and {total}"
    )
    refuse(
        request_id,
        f"{counts} but got {len(inputs)} inputs for model '{signature.model}'. "
        f"Got input(s) {_quoted(inputs)}, but missing required input(s) "
        f"{_quoted(name for name in signature.inputs if name in missing)}. "
        "Please provide all required input(s).",
    )


def _quoted(names: Any) -> str:
    return "[" + ",".join(f"'{name}'" for name in names) + "]"


class SchedulingParameters(NamedTuple):
    """What a request's parameters say to the server; `parameters` are the others, for the model."""

    sequence: SequenceKey | None
    priority: int
    timeout_us: int
    parameters: Mapping[str, Any]


NO_TERMS = SchedulingParameters(None, 0, 0, NO_PARAMETERS)

_SEQUENCE = ("sequence_id", "sequence_start", "sequence_end")
_OWN = frozenset({*_SEQUENCE, "priority", "timeout", "binary_data_output"})


def read_terms(parameters: Mapping[str, Any]) -> SchedulingParameters:
    """Take apart checked parameters; `timeout` is in µs."""
    if _OWN.isdisjoint(parameters):
        return SchedulingParameters(None, 0, 0, parameters)
    rest = dict(parameters)
    sequence = None
    if "sequence_id" in rest:
        sequence = sequence_in(rest)
    for name in _SEQUENCE:
        rest.pop(name, None)
    priority, timeout_us = int(rest.pop("priority", 0)), int(rest.pop("timeout", 0))
    rest.pop("binary_data_output", None)
    return SchedulingParameters(sequence, priority, timeout_us, rest)


def sequence_in(parameters: Mapping[str, Any]) -> SequenceKey | None:
    """The sequence that parameters name, None for none. They may be unchecked: who is refused for
    them belongs to none."""
    key = parameters.get("sequence_id", 0)
    if type(key) not in (int, str) or not key:
        return None
    start, end = parameters.get("sequence_start", False), parameters.get("sequence_end", False)
    return SequenceKey(key, bool(start), bool(end))

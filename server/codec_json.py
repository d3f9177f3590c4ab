"""REST's infer bodies, JSON and binary tensors: bytes → InferRequest, InferResponse → bytes.

`server.infer_http` comes here with the model already found; `server.admit` holds each tensor
against the signature. Pure. Source: KServe v2 and Triton's binary-tensor extension.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from repository.tensors import BY_DTYPE, Array
from schedulers.request import NO_PARAMETERS, InferRequest, InferResponse
from server.admit import admit, check_input, refuse, tensor_from_bytes
from server.errors import Internal, InvalidRequest, TooLarge, Unsupported
from server.json_data import array_from, dump, json_data, load
from server.signature import Signature

_STRING = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


class Asked(NamedTuple):
    """A decoded request, and which of its outputs the client wants as binary data.

    `binary`: names, or True for all (`binary_data_output`).
    """

    request: InferRequest
    binary: frozenset[str] | bool


class Encoded(NamedTuple):
    """A response body; `header_length` is 0 when all of it is JSON."""

    parts: Sequence[bytes | memoryview]
    header_length: int


def decode(
    body: bytes, header_length: int | None, signature: Signature, arrived_ns: int, max_depth: int
) -> Asked:
    """The request in `body`, whose first `header_length` bytes are JSON (None: all of it).

    Raises InvalidRequest, TooLarge, Internal with Triton's texts.
    """
    view = memoryview(body)
    document = load_document(body if header_length is None else view[:header_length], max_depth)
    request_id = document.get("id", "")
    if type(request_id) is not str:
        raise Internal("Unable to parse 'id': attempt to access JSON non-string as string")
    entries = document.get("inputs")
    if type(entries) is not list:
        raise _unparsable("inputs", entries, "array")
    rest = _Binary(signature.model, view[header_length:] if header_length is not None else None)
    inputs: dict[str, Array] = {}
    for entry in entries:
        name, array = _input(entry, rest, signature, request_id)
        if name in inputs:
            refuse(request_id, f"input '{name}' already exists in request")
        inputs[name] = array
    rest.check_all_used()
    parameters = _parameters(document.get("parameters"))
    wanted, binary = _outputs(document.get("outputs"), request_id)
    request = admit(signature, inputs, arrived_ns, request_id, wanted, parameters)
    all_binary = not wanted and parameters.get("binary_data_output") is True
    return Asked(request, all_binary or binary)


def load_document(text: bytes | memoryview, max_depth: int) -> dict[str, Any]:
    """The JSON object in `text`, nested no deeper than `max_depth`."""
    raw = bytes(text) if isinstance(text, memoryview) else text
    if _holds_more_than(raw, max_depth, b"[") or _holds_more_than(raw, max_depth, b"{"):
        _check_depth(raw, max_depth)
    document = load(raw)
    if type(document) is not dict:
        raise InvalidRequest("failed to parse the request JSON buffer: expected an object at 0")
    return document


def _holds_more_than(raw: bytes, most: int, mark: bytes) -> bool:
    """Hop from mark to mark: in a large flat body far cheaper than counting byte by byte."""
    position = -1
    for _ in range(most + 1):
        position = raw.find(mark, position + 1)
        if position < 0:
            return False
    return True


def _check_depth(raw: bytes, max_depth: int) -> None:
    """Peel leaves off the bracket structure; each round is one level."""
    brackets = _STRING.sub(b"", raw).translate(None, _NOT_BRACKETS)
    for _ in range(max_depth):
        if not brackets:
            return
        shorter = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(shorter) == len(brackets):
            return  # unbalanced: the parser will say where
        brackets = shorter
    if brackets:
        raise TooLarge(
            f"the request JSON is nested deeper than the maximum of {max_depth} levels; "
            "use --http-max-json-depth to raise it"
        )


class _Binary:
    """The bytes behind the JSON header, handed out in the order of the inputs."""

    def __init__(self, model: str, view: memoryview | None) -> None:
        self._model = model
        self._view = view if view is not None else memoryview(b"")
        self._used = 0

    def take(self, name: str, size: int) -> memoryview:
        left = len(self._view) - self._used
        if size > left:
            raise InvalidRequest(
                f"unexpected size for input '{name}', expecting {size - left} additional bytes "
                f"for model '{self._model}'"
            )
        self._used += size
        return self._view[self._used - size : self._used]

    def check_all_used(self) -> None:
        if self._used != len(self._view):
            raise InvalidRequest(f"unexpected additional input data for model '{self._model}'")


def _input(entry: Any, rest: _Binary, signature: Signature, request_id: str) -> tuple[str, Array]:
    if type(entry) is not dict:
        raise Internal("Unable to parse 'inputs': attempt to access JSON non-object as object")
    name, datatype, shape = entry.get("name"), entry.get("datatype"), entry.get("shape")
    if type(name) is not str:
        raise _unparsable("name", name, "string")
    if type(datatype) is not str:
        raise _unparsable("datatype", datatype, "string")
    if type(shape) is not list:
        raise _unparsable("shape", shape, "array")
    for dim in shape:
        if type(dim) is not int or dim < 0 or dim > 0x7FFFFFFFFFFFFFFF:
            raise _unparsable("shape", dim, "unsigned-integer")
    size = _binary_size(entry, name)
    has_data = "data" in entry
    if has_data == (size is not None):
        raise _one_source_only(has_data)
    spec = check_input(signature, request_id, name, datatype, shape)
    if size is None:
        return name, array_from(entry["data"], spec, shape)
    return name, tensor_from_bytes(signature, request_id, spec, shape, rest.take(name, size))


def _binary_size(entry: dict[str, Any], name: str) -> int | None:
    parameters = entry.get("parameters")
    if parameters is None:
        return None
    if type(parameters) is not dict:
        raise _unparsable("parameters", parameters, "object")
    if "shared_memory_region" in parameters:
        raise Unsupported(f"input '{name}': this server does not offer shared memory")
    size = parameters.get("binary_data_size")
    if size is not None and (type(size) is not int or size < 0):
        raise _unparsable("binary_data_size", size, "unsigned-integer")
    return size


def _one_source_only(has_data: bool) -> InvalidRequest:
    found = "But set 'data' 'binary_data_size'" if has_data else "But no field is set"
    return InvalidRequest(
        "Input must set only one of the following fields: 'data', 'binary_data_size' in "
        f"'parameters', 'shared_memory_region' in 'parameters'. {found}"
    )


def _unparsable(field: str, value: Any, expected: str) -> Exception:
    if value is None:
        return InvalidRequest(f"failed to parse the request: missing required field '{field}'")
    return Internal(
        f"Unable to parse '{field}': attempt to access JSON non-{expected} as {expected}"
    )


def _parameters(parameters: Any) -> Mapping[str, Any]:
    if not parameters:
        return NO_PARAMETERS
    if type(parameters) is not dict:
        raise _unparsable("parameters", parameters, "object")
    for key, value in parameters.items():
        if key.startswith("triton_"):
            raise InvalidRequest(
                "parameter keys starting with 'triton_' are reserved for Triton usage "
                "and should not be specified."
            )
        if not isinstance(value, bool | int | float | str):
            raise InvalidRequest(
                f"parameter '{key}' has invalid type. It should be either 'int', 'bool', or "
                "'string'."
            )
    return parameters


def _outputs(entries: Any, request_id: str) -> tuple[tuple[str, ...], frozenset[str]]:
    if not entries:
        return (), frozenset()
    if type(entries) is not list:
        raise _unparsable("outputs", entries, "array")
    names: dict[str, bool] = {}
    for entry in entries:
        name = entry.get("name") if type(entry) is dict else None
        if type(name) is not str:
            raise _unparsable("name", name, "string")
        if name in names:
            refuse(request_id, f"output '{name}' already exists in request")
        names[name] = _output_is_binary(entry, name)
    return tuple(names), frozenset(name for name, binary in names.items() if binary)


def _output_is_binary(entry: dict[str, Any], name: str) -> bool:
    parameters = _parameters(entry.get("parameters"))
    if "classification" in parameters:
        raise Unsupported(f"output '{name}': this server does not offer classification yet")
    if "shared_memory_region" in parameters:
        raise Unsupported(f"output '{name}': this server does not offer shared memory")
    binary = parameters.get("binary_data", False)
    if type(binary) is not bool:
        raise _unparsable("binary_data", binary, "boolean")
    return binary


def encode(response: InferResponse, binary: frozenset[str] | bool) -> Encoded:
    """The response's body. Raises InvalidRequest when an output has no JSON form."""
    document: dict[str, Any] = {"id": response.id} if response.id else {}
    document["model_name"] = response.model
    document["model_version"] = str(response.version)
    if response.parameters:
        document["parameters"] = response.parameters
    outputs = document["outputs"] = []
    blobs: list[bytes | memoryview] = []
    for name, array in response.outputs.items():
        entry: dict[str, Any] = {
            "name": name,
            "datatype": BY_DTYPE[array.dtype].name,
            "shape": array.shape,
        }
        if binary is True or (binary and name in binary):
            blob = _blob(array)
            entry["parameters"] = {"binary_data_size": len(blob)}
            blobs.append(blob)
        else:
            entry["data"] = json_data(array)
        outputs.append(entry)
    header = dump(document)
    return Encoded((header, *blobs), len(header) if blobs else 0)


def _blob(array: Array) -> bytes | memoryview:
    if array.dtype.hasobject:
        return b"".join(
            len(text).to_bytes(4, "little") + text for text in map(_as_bytes, array.reshape(-1))
        )
    return np.ascontiguousarray(array).reshape(-1).view(np.uint8).data


def _as_bytes(text: Any) -> bytes:
    return text.encode() if isinstance(text, str) else bytes(text)

"""The generate verbs' bodies: a flat JSON object → InferBody, InferResponse → a flat object.

`server.rest.generate` comes here with the model already found. Keys that name an input become
its tensor, all others parameters. Pure. Source: Triton's generate extension.
"""

from typing import Any

from repository.config.tensors import Array
from schedulers.request import InferResponse
from server.admit import admit, check_counts, check_strings, refuse
from server.codec.json_data import array_from, json_data
from server.codec.json_parameters import check_parameters, read_parameters
from server.codec.json_text import Pairs, dump, load_pairs, unparsable
from server.codec.output_format import InferBody
from server.errors import Internal, InvalidRequest
from server.signature import Signature, TensorSpec

_ID, _PARAMETERS = "id", "parameters"


def parse(body: bytes, max_depth: int) -> Pairs:
    """The JSON object in `body`. Raises InvalidRequest, TooLarge."""
    return load_pairs(body, max_depth)


def parameters_in(members: Pairs) -> dict[str, Any]:
    """All that may be parameters, before it is known which members are inputs."""
    found = dict(members)
    nested = found.get(_PARAMETERS)
    return {**dict(nested), **found} if type(nested) is Pairs else found


def decode(
    body: bytes, signature: Signature, max_depth: int, members: Pairs | None = None
) -> InferBody:
    """The request in `body`, which asks for all outputs. `members`: what `parse` has made of it,
    where it was asked before.

    `id` names the request; the members of `parameters` count as if they stood beside it. Raises
    InvalidRequest, TooLarge, Internal.
    """
    if members is None:
        members = parse(body, max_depth)
    reader = _GenerateBodyReader(signature, _request_id(members))
    for key, value in members:
        if key == _PARAMETERS:
            reader.take_parameters(value)
        elif key != _ID:
            reader.take(key, value)
    check_counts(signature, reader.id, len(reader.inputs), 0, len(reader.parameters))
    parameters = read_parameters(reader.parameters)
    rows, shape_key = admit(signature, reader.inputs, reader.id)
    return InferBody(reader.id, reader.inputs, rows, shape_key, parameters=parameters)


def _request_id(members: Pairs) -> str:
    for reserved in (_ID, _PARAMETERS):
        if sum(key == reserved for key, _ in members) > 1:
            raise InvalidRequest(f"key '{reserved}' already exists in request")
    request_id = dict(members).get(_ID, "")
    if type(request_id) is not str:
        raise unparsable(_ID, request_id, "string")
    return request_id


class _GenerateBodyReader:
    """What was read of a request so far."""

    def __init__(self, signature: Signature, request_id: str) -> None:
        self._signature = signature
        self.id = request_id
        self.inputs: dict[str, Array] = {}
        self.parameters: dict[str, Any] = {}
        self._strings = 0

    def take_parameters(self, value: Any) -> None:
        """Take each member of the object under the key `parameters`."""
        if _PARAMETERS in self._signature.inputs:
            raise InvalidRequest(
                f"Keyword '{_PARAMETERS}' for nested schema also given as input tensor name"
            )
        if type(value) is not Pairs:
            raise Internal(
                f"Expected JSON object for keyword: '{_PARAMETERS}': "
                "attempt to access JSON non-object as object"
            )
        try:
            for key, member in value:
                self.take(key, member)
        except (InvalidRequest, Internal) as error:
            raise type(error)(f"Converting keyword: '{_PARAMETERS}': {error}") from error

    def take(self, key: str, value: Any) -> None:
        spec = self._signature.inputs.get(key)
        if spec is None:
            if key in self.parameters:
                refuse(self.id, f"parameter '{key}' already exists in request")
            self.parameters.update(check_parameters({key: value}))
            return
        if key in self.inputs:
            refuse(self.id, f"input '{key}' already exists in request")
        data = value if type(value) is list else [value]
        if any(type(element) is list for element in data):
            raise _no_shape(spec, "a scalar or a flat list is taken")
        if not spec.itemsize:
            check_strings(self._signature, self.id, spec, len(data), self._strings)
            self._strings += len(data)
        self.inputs[key] = array_from(data, spec, shape_for(spec, len(data)))


def shape_for(spec: TensorSpec, count: int) -> tuple[int, ...]:
    """The shape of an input (batch dimension included) that `count` elements fill.

    Fixed dimensions are as configured; the innermost of the others takes what is left and the
    rest are 1. Raises InvalidRequest when that does not come out even.
    """
    left = count
    for dim in spec.full_dims:
        if dim != -1 and left % dim:
            raise _no_shape(spec, f"got {count} elements for {list(spec.full_dims)}")
        left = left if dim == -1 else left // dim
    shape: list[int] = []
    for dim in reversed(spec.full_dims):
        shape.append(left if dim == -1 else dim)
        left = 1 if dim == -1 else left
    if left != 1:
        raise _no_shape(spec, f"got {count} elements for {list(spec.full_dims)}")
    return tuple(reversed(shape))


def _no_shape(spec: TensorSpec, why: str) -> InvalidRequest:
    return InvalidRequest(
        f"The schema can not convert input '{spec.name}' to tensor with proper shape: {why}"
    )


def encode(response: InferResponse) -> bytes:
    """`id`, `model_name`, `model_version`, response parameters and outputs, side by side.

    An output of one element is that element, any other a flat list. Raises InvalidRequest when
    an output has no JSON form.
    """
    document: dict[str, Any] = {name: _data(array) for name, array in response.outputs.items()}
    document.update(response.parameters)
    document.update(model_name=response.model, model_version=str(response.version))
    if response.id:
        document["id"] = response.id
    return dump(document)


def _data(array: Array) -> Any:
    data = json_data(array)
    return data[0] if array.size == 1 else data

"""REST's infer bodies, JSON and binary tensors: bytes → InferBody, InferResponse → bytes.

`server.rest.infer` comes here with the model already found; `server.admit` holds each tensor
against the signature. Pure, but for tensors in shared memory. Source: KServe v2 and Triton's
binary-tensor extension.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from repository.config.tensors import BY_DTYPE, Array
from schedulers.request import NO_PARAMETERS, InferResponse
from server.admit import admit, check_counts, check_input, refuse, tensor_from_bytes
from server.codec.classification import TopClasses, classified, top
from server.codec.json_data import array_from, json_data
from server.codec.json_parameters import check_parameters, read_parameters
from server.codec.json_text import dump, load_document, unparsable
from server.codec.octets import octets
from server.codec.output_format import PLAIN, InferBody, OutputFormat
from server.codec.shared_memory_parameters import place_in_json
from server.errors import Internal, InvalidRequest
from server.shared_memory.regions import DISALLOWED, RegionSlice, SharedMemory
from server.signature import Signature


class EncodedResponse(NamedTuple):
    """A response body; `header_length` is 0 when all of it is JSON."""

    parts: Sequence[bytes | memoryview]
    header_length: int


Document = dict[str, Any]
"""The JSON of a body, read but not checked."""


def parse(body: bytes, header_length: int | None, max_depth: int) -> Document:
    """The JSON in `body`; `header_length` as of `decode`. Raises InvalidRequest, TooLarge."""
    return load_document(body if header_length is None else body[:header_length], max_depth)


def parameters_in(document: Document) -> Mapping[str, Any]:
    """Its parameters, before anything is checked; none where there is no such object."""
    found = document.get("parameters")
    return found if type(found) is dict else NO_PARAMETERS


def decode(
    body: bytes,
    header_length: int | None,
    signature: Signature,
    max_depth: int,
    shared: SharedMemory = DISALLOWED,
    document: Document | None = None,
) -> InferBody:
    """The request in `body`, whose first `header_length` bytes are JSON (None: all of it).
    `document`: what `parse` has made of it, where it was asked before.

    Tensors may lie in `shared` memory. Raises InvalidRequest, TooLarge, Internal, and what
    `SharedMemory.place` raises, with Triton's texts.
    """
    if document is None:
        document = parse(body, header_length, max_depth)
    request_id = document.get("id", "")
    if type(request_id) is not str:
        raise unparsable("id", request_id, "string")
    entries = document.get("inputs")
    if type(entries) is not list:
        raise unparsable("inputs", entries, "array")
    outputs, parameters = document.get("outputs"), document.get("parameters")
    check_counts(signature, request_id, len(entries), _count(outputs), _count(parameters))
    rest = _BinaryTensorReader(
        signature.model, b"" if header_length is None else body, header_length or 0
    )
    inputs: dict[str, Array] = {}
    strings = 0
    for entry in entries:
        name, array = _input(entry, rest, shared, signature, request_id, strings)
        if name in inputs:
            refuse(request_id, f"input '{name}' already exists in request")
        inputs[name] = array
        if array.dtype.hasobject:
            strings += array.size
    rest.check_all_used()
    found = read_parameters(parameters)
    output_names, form = _outputs(outputs, shared, signature, request_id)
    rows, key = admit(signature, inputs, request_id, output_names)
    if not output_names and found.get("binary_data_output") is True:
        form = OutputFormat(binary=True)
    return InferBody(request_id, inputs, rows, key, output_names, found, form)


def _count(value: Any) -> int:
    """Members of an array or object; of another value, which is refused later, none."""
    return len(value) if type(value) is list or type(value) is dict else 0


class _BinaryTensorReader:
    """The bytes behind the JSON header, handed out in the order of the inputs."""

    def __init__(self, model: str, body: bytes, start: int) -> None:
        self._model = model
        self._view = memoryview(body)[start:]
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


def _input(
    entry: Any,
    rest: _BinaryTensorReader,
    shared: SharedMemory,
    signature: Signature,
    request_id: str,
    strings_before: int,
) -> tuple[str, Array]:
    if type(entry) is not dict:
        raise Internal("Unable to parse 'inputs': attempt to access JSON non-object as object")
    name, datatype, shape = entry.get("name"), entry.get("datatype"), entry.get("shape")
    if type(name) is not str:
        raise unparsable("name", name, "string")
    if type(datatype) is not str:
        raise unparsable("datatype", datatype, "string")
    if type(shape) is not list:
        raise unparsable("shape", shape, "array")
    for dim in shape:
        if type(dim) is not int or dim < 0 or dim > 0x7FFFFFFFFFFFFFFF:
            raise unparsable("shape", dim, "unsigned-integer")
    source = _source(entry, name, shared)
    spec = check_input(signature, request_id, name, datatype, shape, strings_before)
    if source is None:
        return name, array_from(entry["data"], spec, shape)
    found = source.read() if isinstance(source, RegionSlice) else rest.take(name, source)
    return name, tensor_from_bytes(signature, request_id, spec, shape, found)


def _source(entry: dict[str, Any], name: str, shared: SharedMemory) -> int | RegionSlice | None:
    """Where the tensor is: so many bytes behind the header, in shared memory, or in `data`."""
    parameters = entry.get("parameters")
    if parameters is None and "data" in entry:
        return None
    if parameters is not None and type(parameters) is not dict:
        raise unparsable("parameters", parameters, "object")
    size = parameters.get("binary_data_size") if parameters else None
    if size is not None and (type(size) is not int or size < 0):
        raise unparsable("binary_data_size", size, "unsigned-integer")
    place = place_in_json(shared, name, parameters) if parameters else None
    has_data = "data" in entry
    if has_data + (size is not None) + (place is not None) != 1:
        raise _one_source_only(has_data, size, place)
    return size if place is None else place


def _one_source_only(has_data: bool, size: int | None, place: RegionSlice | None) -> InvalidRequest:
    given = {"data": has_data, "binary_data_size": size is not None}
    given["shared_memory_region"] = place is not None
    fields = " ".join(f"'{field}'" for field, is_set in given.items() if is_set)
    return InvalidRequest(
        "Input must set only one of the following fields: 'data', 'binary_data_size' in "
        "'parameters', 'shared_memory_region' in 'parameters'. "
        f"But {f'set {fields}' if fields else 'no field is set'}"
    )


def _outputs(
    entries: Any, shared: SharedMemory, signature: Signature, request_id: str
) -> tuple[tuple[str, ...], OutputFormat]:
    if not entries:
        return (), PLAIN
    if type(entries) is not list:
        raise unparsable("outputs", entries, "array")
    names: dict[str, None] = {}
    binary: set[str] = set()
    tops: dict[str, TopClasses] = {}
    places: dict[str, RegionSlice] = {}
    for entry in entries:
        name = entry.get("name") if type(entry) is dict else None
        if type(name) is not str:
            raise unparsable("name", name, "string")
        if name in names:
            refuse(request_id, f"output '{name}' already exists in request")
        names[name] = None
        if "parameters" not in entry:
            continue
        parameters = check_parameters(entry["parameters"])
        if place := place_in_json(shared, name, parameters):
            places[name] = place
        if _wants_binary(parameters):
            binary.add(name)
        if count := _class_count(parameters):
            tops[name] = top(signature, name, count)
    return tuple(names), OutputFormat(frozenset(binary), tops, places)


def _wants_binary(parameters: Mapping[str, Any]) -> bool:
    binary = parameters.get("binary_data", False)
    if type(binary) is not bool:
        raise unparsable("binary_data", binary, "boolean")
    return binary


def _class_count(parameters: Mapping[str, Any]) -> int:
    """How many classes are wanted; 0 when the output itself is."""
    count = parameters.get("classification", 0)
    if type(count) is not int or count < 0:
        raise unparsable("classification", count, "unsigned-integer")
    return count


def encode(response: InferResponse, form: OutputFormat) -> EncodedResponse:
    """The response's body; outputs that have a place in shared memory are written there.

    Raises InvalidRequest when an output has no JSON form, or no room in its place.
    """
    binary = form.binary
    if form.tops:
        response = classified(response, form.tops)
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
        if form.places and name in form.places:
            form.places[name].write(octets(array))
        elif binary is True or (binary and name in binary):
            blob = octets(array)
            entry["parameters"] = {"binary_data_size": len(blob)}
            blobs.append(blob)
        else:
            entry["data"] = json_data(array)
        outputs.append(entry)
    header = dump(document)
    return EncodedResponse((header, *blobs), len(header) if any(map(len, blobs)) else 0)

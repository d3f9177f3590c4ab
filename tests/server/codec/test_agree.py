"""One request, every way it can be written: the codecs read the same, and lose no bit.

REST as JSON, REST as binary, gRPC with typed contents, gRPC with raw contents, and generate.
"""

import json
import struct
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

from repository.config.tensors import BY_NAME, DATA_TYPES, Array
from repository.model import ModelConfig
from schedulers.request import NO_PARAMETERS, InferResponse
from server.admit import bytes_array, read_terms
from server.codec import grpc_infer, json_generate, json_infer
from server.codec.output_format import PLAIN, InferBody, OutputFormat
from server.signature import Signature, compile_signature

NAMES = [row.name for row in DATA_TYPES]
FIELDS = {
    "BOOL": "bool_contents",
    **dict.fromkeys(("INT8", "INT16", "INT32"), "int_contents"),
    **dict.fromkeys(("UINT8", "UINT16", "UINT32"), "uint_contents"),
    "INT64": "int64_contents",
    "UINT64": "uint64_contents",
    "FP32": "fp32_contents",
    "FP64": "fp64_contents",
    "BYTES": "bytes_contents",
}


class Message(NamedTuple):
    """A request before it is written: inputs of one data type, and the rest."""

    datatype: str
    inputs: dict[str, Array]
    id: str = ""
    requested_outputs: tuple[str, ...] = ()
    parameters: Mapping[str, Any] = NO_PARAMETERS


def signature(datatype: str, max_batch: int = 0) -> Signature:
    kind = "TYPE_STRING" if datatype == "BYTES" else f"TYPE_{datatype}"
    text = f'name: "m" max_batch_size: {max_batch}'
    for place, name in (("input", "A"), ("input", "B"), ("output", "Y")):
        optional = " optional: true" if name == "B" else ""
        text += f' {place} {{ name: "{name}" data_type: {kind} dims: -1{optional} }}'
    return compile_signature(text_format.Parse(text, ModelConfig()), 1)


def octets(array: Array) -> bytes:
    if not array.dtype.hasobject:
        return array.tobytes()
    return b"".join(struct.pack("<I", len(one)) + one for one in array.reshape(-1))


def elements(array: Array) -> list[Any]:
    """As JSON writes them: text, or the shortest numbers that read back as the same."""
    if array.dtype.hasobject:
        return [one.decode() for one in array.reshape(-1)]
    return [value.item() for value in array.reshape(-1).astype(_wide(array))]


def _wide(array: Array) -> Any:
    return np.float64 if array.dtype.kind in "fV" else array.dtype


def as_json(message: Message, model: Signature) -> InferBody:
    document = _document(message)
    for entry, array in zip(document["inputs"], message.inputs.values(), strict=True):
        entry["data"] = elements(array)
    body = json.dumps(document, ensure_ascii=False).encode()
    return json_infer.decode(body, None, model, 100)


def as_binary(message: Message, model: Signature) -> InferBody:
    document = _document(message)
    blobs = [octets(array) for array in message.inputs.values()]
    for entry, blob in zip(document["inputs"], blobs, strict=True):
        entry["parameters"] = {"binary_data_size": len(blob)}
    header = json.dumps(document).encode()
    return json_infer.decode(header + b"".join(blobs), len(header), model, 100)


def _document(message: Message) -> dict[str, Any]:
    inputs = [
        {"name": name, "datatype": message.datatype, "shape": list(array.shape)}
        for name, array in message.inputs.items()
    ]
    outputs = [{"name": name} for name in message.requested_outputs]
    found = {"id": message.id, "inputs": inputs, "outputs": outputs}
    return {**found, "parameters": dict(message.parameters)}


def as_typed(message: Message, model: Signature) -> InferBody:
    written = _message(message)
    for entry, array in zip(written.inputs, message.inputs.values(), strict=True):
        entry.contents.SetInParent()
        getattr(entry.contents, FIELDS[message.datatype]).extend(array.reshape(-1).tolist())
    return _decoded(written, model)


def as_raw(message: Message, model: Signature) -> InferBody:
    written = _message(message)
    written.raw_input_contents.extend(octets(array) for array in message.inputs.values())
    return _decoded(written, model)


def _message(message: Message) -> pb.ModelInferRequest:
    written = pb.ModelInferRequest(model_name="m", id=message.id)
    for name, array in message.inputs.items():
        written.inputs.add(name=name, datatype=message.datatype, shape=array.shape)
    for name in message.requested_outputs:
        written.outputs.add(name=name)
    for key, value in message.parameters.items():
        grpc_infer.set_parameter(written.parameters[key], value)
        if isinstance(value, str):
            written.parameters[key].string_param = value
    return written


def _decoded(written: pb.ModelInferRequest, model: Signature) -> InferBody:
    read = pb.ModelInferRequest.FromString(written.SerializeToString())
    return grpc_infer.decode(read, model)


def as_generate(message: Message, model: Signature) -> InferBody:
    found = {name: elements(array) for name, array in message.inputs.items()}
    document = {"id": message.id, **found, "parameters": dict(message.parameters)}
    return json_generate.decode(json.dumps(document).encode(), model, 100)


Writer = Callable[[Message, Signature], InferBody]


def writers(message: Message) -> list[Writer]:
    """The ways this request can be written."""
    found: list[Writer] = [as_json, as_binary, as_raw]
    if message.datatype in FIELDS:
        found.append(as_typed)
    flat = all(array.ndim == 1 for array in message.inputs.values())
    if flat and not message.requested_outputs:
        found.append(as_generate)
    return found


def facts(request: InferBody) -> Any:
    """Everything a request says, in a form that can be compared; NaN by its bits."""
    inputs = {
        name: (array.dtype, array.shape, octets(array)) for name, array in request.inputs.items()
    }
    said = (request.id, request.rows, request.shape_key, request.requested_outputs)
    rest = [*said, *read_terms(request.parameters)]
    return inputs, rest


def arrays(datatype: str, nan: bool = True) -> st.SearchStrategy[Array]:
    """One-dimensional arrays from empty to eight elements; any bits the type can have."""
    if datatype == "BYTES":
        texts = st.lists(st.text(max_size=6).map(str.encode), max_size=8)
        return texts.map(lambda found: bytes_array(found, (len(found),)))
    dtype = BY_NAME[datatype].dtype
    size = st.integers(0, 8).map(lambda count: count * dtype.itemsize)
    found = size.flatmap(lambda size: st.binary(min_size=size, max_size=size)).map(
        lambda raw: np.frombuffer(bytes(b & 1 for b in raw) if datatype == "BOOL" else raw, dtype)
    )
    return found if nan else found.map(_without_nan)


def _without_nan(array: Array) -> Array:
    with np.errstate(invalid="ignore"):  # ml_dtypes warns of comparing a signalling NaN
        return np.where(array == array, array, array.dtype.type(0))


@settings(deadline=None, max_examples=40)
@given(st.data())
@pytest.mark.parametrize("datatype", NAMES)
def test_every_way_of_writing_a_request_is_read_as_the_same(datatype: str, data: Any) -> None:
    inputs = {"A": data.draw(arrays(datatype, nan=False))}
    if data.draw(st.booleans()):
        inputs["B"] = data.draw(arrays(datatype, nan=False))
    message = Message(
        datatype,
        inputs,
        data.draw(st.text(max_size=4)),
        data.draw(st.sampled_from([(), ("Y",)])),
        data.draw(st.sampled_from([{}, PARAMETERS])),
    )
    model = signature(datatype)
    first, *others = [writer(message, model) for writer in writers(message)]
    assert facts(first)[0]["A"][2] == octets(inputs["A"])
    for other in others:
        assert facts(other) == facts(first)


PARAMETERS = {
    "sequence_id": "α",
    "sequence_start": True,
    "priority": 2,
    "timeout": 900,
    "mine": -4,
    "name": "ü",
    "share": 0.5,
}


@pytest.mark.parametrize("datatype", NAMES)
def test_batches_and_their_keys_are_the_same_on_every_wire(datatype: str) -> None:
    model = signature(datatype, max_batch=4)
    flat = bytes_array([b"a", b"", "ü".encode()], (3,)) if datatype == "BYTES" else None
    row = np.array([0, 1, 1], BY_NAME[datatype].dtype) if flat is None else flat
    message = Message(datatype, {"B": np.stack([row, row]), "A": np.stack([row, row])})
    read = [facts(writer(message, model)) for writer in writers(message)]
    assert all(one == read[0] for one in read)


@settings(deadline=None, max_examples=40)
@given(st.data())
@pytest.mark.parametrize("datatype", NAMES)
def test_bytes_of_any_kind_come_back_as_they_were(datatype: str, data: Any) -> None:
    """NaN payloads included; over typed contents FP32's signalling NaN is the client's affair."""
    array = data.draw(arrays(datatype))
    model = signature(datatype)
    for writer in (as_binary, as_raw):
        request = writer(Message(datatype, {"A": array}), model)
        response = InferResponse("", "m", 1, {"Y": request.inputs["A"]})
        message = grpc_infer.encode(response, model)
        assert message.raw_output_contents == [octets(array)]
        assert list(message.outputs[0].shape) == list(array.shape)
        encoded = json_infer.encode(response, OutputFormat(binary=True))
        body = b"".join(bytes(part) for part in encoded.parts)
        assert body[encoded.header_length or len(body) :] == octets(array)
        assert json_infer.encode(response, PLAIN).parts


@settings(deadline=None, max_examples=40)
@given(st.data())
@pytest.mark.parametrize("datatype", NAMES)
def test_answers_in_json_read_back_bit_for_bit(datatype: str, data: Any) -> None:
    array = data.draw(arrays(datatype, nan=False))
    response = InferResponse("", "m", 1, {"Y": array})
    (part,) = json_infer.encode(response, PLAIN).parts
    (output,) = json.loads(bytes(part))["outputs"]
    entry = {"name": "A", "datatype": datatype, "shape": output["shape"], "data": output["data"]}
    body = json.dumps({"inputs": [entry]}, ensure_ascii=False).encode()
    again = json_infer.decode(body, None, signature(datatype), 100).inputs["A"]
    assert octets(again) == octets(array)


@pytest.mark.parametrize("datatype", ["FP16", "FP32", "FP64", "BF16"])
def test_infinities_and_nan_travel_in_json(datatype: str) -> None:
    dtype = BY_NAME[datatype].dtype
    array = np.array([np.nan, np.inf, -np.inf, -0.0], dtype)
    response = InferResponse("", "m", 1, {"Y": array})
    (part,) = json_infer.encode(response, PLAIN).parts
    (output,) = json.loads(bytes(part))["outputs"]
    request = as_json(Message(datatype, {"A": array}), signature(datatype))
    for found in (np.array(output["data"], dtype), request.inputs["A"]):
        assert np.isnan(found[0].astype(np.float64))
        assert octets(found[1:]) == octets(array[1:])

"""Whatever comes over REST is decoded, or refused with an error the table knows; so are answers."""

import json
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

from repository.model import ModelConfig
from schedulers.request import InferResponse
from server import codec_grpc, codec_json, generate
from server.errors import InvalidRequest, ServingError
from server.json_text import dump
from server.signature import compile_signature

MODEL = compile_signature(
    text_format.Parse(
        """
        name: "m"
        input { name: "N" data_type: TYPE_INT8 dims: -1 optional: true }
        input { name: "U" data_type: TYPE_UINT64 dims: -1 optional: true }
        input { name: "F" data_type: TYPE_FP32 dims: -1 optional: true }
        input { name: "B" data_type: TYPE_BOOL dims: -1 optional: true }
        input { name: "S" data_type: TYPE_STRING dims: -1 optional: true }
        output { name: "Y" data_type: TYPE_FP32 dims: -1 }
        """,
        ModelConfig(),
    ),
    1,
)
NAMES = st.sampled_from(["N", "U", "F", "B", "S", "Y", "X", ""])
NUMBERS = st.one_of(
    st.integers(), st.sampled_from([2**63, 2**64, -(2**63) - 1, 10**400]), st.floats()
)
SCALARS = st.one_of(st.none(), st.booleans(), NUMBERS, st.text(max_size=3), NAMES)
ANYTHING = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=6,
)
KEYS = st.sampled_from(
    [
        "sequence_id",
        "sequence_start",
        "sequence_end",
        "priority",
        "timeout",
        "binary_data_output",
        "binary_data",
        "binary_data_size",
        "classification",
        "shared_memory_region",
        "triton_x",
        "p",
    ]
)
PARAMETERS = st.dictionaries(KEYS, ANYTHING, max_size=3) | ANYTHING
TENSORS = st.fixed_dictionaries(
    {},
    optional={
        "name": NAMES | ANYTHING,
        "datatype": st.sampled_from(["INT8", "UINT64", "FP32", "BOOL", "BYTES"]) | ANYTHING,
        "shape": st.lists(st.integers(0, 3), min_size=1, max_size=1) | ANYTHING,
        "data": st.lists(SCALARS, max_size=3) | ANYTHING,
        "parameters": PARAMETERS,
    },
)
REQUESTS = st.fixed_dictionaries(
    {"inputs": st.lists(TENSORS, max_size=2) | ANYTHING},
    optional={
        "id": st.text(max_size=3) | ANYTHING,
        "outputs": st.lists(TENSORS, max_size=2) | ANYTHING,
        "parameters": PARAMETERS,
    },
)


def answerable(request: Any) -> bool:
    """The answer that echoes what the request says can be written."""
    answer = InferResponse(request.id, "m", 1, request.inputs, request.parameters)
    return bool(dump({"id": request.id, "parameters": dict(request.parameters)})) and (
        bool(generate.encode(answer)) if "S" not in request.inputs else True
    )


@settings(deadline=None, max_examples=300)
@given(REQUESTS, st.binary(max_size=8), st.booleans())
def test_an_infer_request_is_decoded_or_refused(
    document: Any, blob: bytes, is_binary: bool
) -> None:
    header = json.dumps(document).encode()
    try:
        asked = codec_json.decode(
            header + blob * is_binary, len(header) if is_binary else None, MODEL, 0, 100
        )
    except ServingError:
        return
    assert answerable(asked.request)


WIDE = compile_signature(
    text_format.Parse(
        """
        name: "wide"
        input { name: "X" data_type: TYPE_FP32 dims: [ -1, -1, -1 ] }
        output { name: "Y" data_type: TYPE_FP32 dims: [ -1, -1, -1 ] }
        """,
        ModelConfig(),
    ),
    1,
)


@pytest.mark.parametrize(
    "shape", [[0, 2**62, 2**62], [0, 1, 2**63 - 1], [2**61, 1, 0], [2**32, 2**32, 0]]
)
def test_an_empty_tensor_of_a_shape_no_array_can_have_is_refused(shape: list[int]) -> None:
    """Its data is as long as the shape says: not at all."""
    tensor = {"name": "X", "datatype": "FP32", "shape": shape}
    body = json.dumps({"inputs": [{**tensor, "data": []}]}).encode()
    message = pb.ModelInferRequest(inputs=[tensor], raw_input_contents=[b""])
    with pytest.raises(InvalidRequest, match="is too large: no array can have so many elements"):
        codec_json.decode(body, None, WIDE, 0, 100)
    with pytest.raises(InvalidRequest, match="is too large: no array can have so many elements"):
        codec_grpc.decode(message, WIDE, 0)


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(NAMES | KEYS | st.sampled_from(["id", "parameters"]), ANYTHING))
@example({"parameters": {"N": [1], "timeout": "x"}})
@example({"U": [2**64]})
@example({"F": 3.5e38})
def test_a_generate_request_is_decoded_or_refused(document: Any) -> None:
    try:
        request = generate.decode(json.dumps(document).encode(), MODEL, 0, 100)
    except ServingError:
        return
    assert answerable(request)


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=40) | st.text('{}[]",:0-1eE.N\\du8aI', max_size=40).map(str.encode))
@example(b'{"a":"\\ud800"}')
@example(b"[" * 5000)
@example(b'{"a":' * 5000)
def test_any_bytes_are_decoded_or_refused(body: bytes) -> None:
    for attempt in (
        lambda: codec_json.decode(body, None, MODEL, 0, 100),
        lambda: generate.decode(body, MODEL, 0, 100),
    ):
        try:
            attempt()
        except ServingError:
            continue

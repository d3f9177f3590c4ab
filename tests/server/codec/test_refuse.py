"""Whatever comes over REST is decoded, or refused with an error the table knows; so are answers."""

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest
from google.protobuf import text_format
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tritonclient.grpc import service_pb2 as pb

from repository.model import ModelConfig
from schedulers.request import InferResponse
from server.admit import MOST_PARAMETERS, MOST_STRINGS, MOST_TENSORS
from server.codec import grpc_infer, json_generate, json_infer
from server.codec.json_text import dump
from server.errors import InvalidRequest, RequestTooLarge, ServingError
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
        bool(json_generate.encode(answer)) if "S" not in request.inputs else True
    )


@settings(deadline=None, max_examples=300)
@given(REQUESTS, st.binary(max_size=8), st.booleans())
def test_an_infer_request_is_decoded_or_refused(
    document: Any, blob: bytes, is_binary: bool
) -> None:
    header = json.dumps(document).encode()
    try:
        asked = json_infer.decode(
            header + blob * is_binary, len(header) if is_binary else None, MODEL, 100
        )
    except ServingError:
        return
    assert answerable(asked)


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
        json_infer.decode(body, None, WIDE, 100)
    with pytest.raises(InvalidRequest, match="is too large: no array can have so many elements"):
        grpc_infer.decode(message, WIDE)


STRINGS = compile_signature(
    text_format.Parse(
        """
        name: "strings"
        input { name: "A" data_type: TYPE_STRING dims: -1 }
        input { name: "B" data_type: TYPE_STRING dims: -1 optional: true }
        output { name: "Y" data_type: TYPE_STRING dims: -1 }
        """,
        ModelConfig(),
    ),
    1,
)
HALF = MOST_STRINGS // 2
REFUSED_STRINGS = (
    f"too many string elements for inference input '.' for model 'strings': {MOST_STRINGS + 1} "
    f"with those of the inputs before it, and a request may have {MOST_STRINGS}"
)


def entries(*counts: int) -> list[dict[str, Any]]:
    return [
        {"name": name, "datatype": "BYTES", "shape": [count]}
        for name, count in zip("AB", counts, strict=False)
    ]


def string_requests(*counts: int) -> dict[str, Callable[[], Any]]:
    """The inputs A and B of so many empty strings, in every form in which one may send them."""
    plain = [{**entry, "data": [""] * entry["shape"][0]} for entry in entries(*counts)]
    sized = [
        {**entry, "parameters": {"binary_data_size": entry["shape"][0] * 4}}
        for entry in entries(*counts)
    ]
    header = json.dumps({"inputs": sized}).encode()
    raw = [b"\0" * 4 * count for count in counts]
    typed = [
        {**entry, "contents": {"bytes_contents": [b""] * entry["shape"][0]}}
        for entry in entries(*counts)
    ]
    flat = json.dumps({name: [""] * count for name, count in zip("AB", counts, strict=False)})
    message = pb.ModelInferRequest
    return {
        "json": lambda: json_infer.decode(
            json.dumps({"inputs": plain}).encode(), None, STRINGS, 100
        ),
        "binary": lambda: json_infer.decode(header + b"".join(raw), len(header), STRINGS, 100),
        "raw": lambda: grpc_infer.decode(
            message(inputs=entries(*counts), raw_input_contents=raw), STRINGS
        ),
        "typed": lambda: grpc_infer.decode(message(inputs=typed), STRINGS),
        "generate": lambda: json_generate.decode(flat.encode(), STRINGS, 100),
    }


FORMS = ["json", "binary", "raw", "typed", "generate"]


@pytest.mark.parametrize("counts", [(MOST_STRINGS + 1,), (HALF, HALF + 1)], ids=["one", "two"])
@pytest.mark.parametrize("form", FORMS)
def test_more_strings_than_a_request_may_have_are_refused(
    form: str, counts: tuple[int, ...]
) -> None:
    with pytest.raises(InvalidRequest, match=REFUSED_STRINGS):
        string_requests(*counts)[form]()


@pytest.mark.parametrize("form", FORMS)
def test_as_many_strings_as_a_request_may_have_are_taken(form: str) -> None:
    asked = string_requests(HALF, HALF)[form]()
    request = asked
    assert [array.size for array in request.inputs.values()] == [HALF, HALF]


def test_strings_are_counted_by_the_shape_before_they_are_read() -> None:
    message = pb.ModelInferRequest(inputs=entries(1 << 40), raw_input_contents=[b"\0"])
    with pytest.raises(InvalidRequest, match=f"too many string elements .* {1 << 40} with"):
        grpc_infer.decode(message, STRINGS)


def test_strings_of_a_shape_below_zero_are_not_read_on() -> None:
    """What the shape says is one element fewer than none, and none reaches it."""
    batched = compile_signature(
        text_format.Parse(
            """
            name: "batched" max_batch_size: 8
            input { name: "A" data_type: TYPE_STRING dims: 1 }
            output { name: "Y" data_type: TYPE_STRING dims: 1 }
            """,
            ModelConfig(),
        ),
        1,
    )
    tensor = {"name": "A", "datatype": "BYTES", "shape": [-1, 1]}
    message = pb.ModelInferRequest(inputs=[tensor], raw_input_contents=[b"\0" * 4])
    with pytest.raises(InvalidRequest, match="unexpected number of string elements"):
        grpc_infer.decode(message, batched)


@settings(deadline=None, max_examples=200)
@given(st.dictionaries(NAMES | KEYS | st.sampled_from(["id", "parameters"]), ANYTHING))
@example({"parameters": {"N": [1], "timeout": "x"}})
@example({"U": [2**64]})
@example({"F": 3.5e38})
def test_a_generate_request_is_decoded_or_refused(document: Any) -> None:
    try:
        request = json_generate.decode(json.dumps(document).encode(), MODEL, 100)
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
        lambda: json_infer.decode(body, None, MODEL, 100),
        lambda: json_generate.decode(body, MODEL, 100),
    ):
        try:
            attempt()
        except ServingError:
            continue


@pytest.mark.parametrize(
    ("field", "what", "most"),
    [
        ("inputs", "inputs", MOST_TENSORS),
        ("outputs", "requested outputs", MOST_TENSORS),
        ("parameters", "parameters", MOST_PARAMETERS),
    ],
)
def test_a_request_names_no_more_than_any_model_has(field: str, what: str, most: int) -> None:
    names = [str(index) for index in range(most + 1)]
    document: dict[str, Any] = {"inputs": [], field: [{"name": name} for name in names]}
    message = pb.ModelInferRequest()
    if field == "parameters":
        document[field] = dict.fromkeys(names, 1)
        for name in names:
            message.parameters[name].int64_param = 1
    else:
        for name in names:
            getattr(message, field).add(name=name)
    said = f"model 'm' has {most + 1} {what}, more than the maximum of {most}"
    if field != "parameters":
        said += f"; the model has {len(getattr(MODEL, field))}$"
    with pytest.raises(InvalidRequest, match=said):
        json_infer.decode(json.dumps(document).encode(), None, MODEL, 100)
    with pytest.raises(InvalidRequest, match=said):
        grpc_infer.decode(message, MODEL)


def test_a_hundred_thousand_outputs_are_refused_with_what_a_request_may_name() -> None:
    outputs = [{"name": "OUTPUT"}] * 100_000
    body = json.dumps({"inputs": [], "outputs": outputs}).encode()
    with pytest.raises(
        RequestTooLarge, match="has 100002 keys, more than the maximum of 65536; "
    ) as told:
        json_infer.decode(body, None, MODEL, 100)
    assert "may name 4096 inputs and 4096 outputs" in str(told.value)
    assert "binary form" not in str(told.value)


def test_a_generate_request_has_no_more_parameters_either() -> None:
    body = json.dumps(dict.fromkeys(map(str, range(MOST_PARAMETERS + 1)), 1)).encode()
    with pytest.raises(InvalidRequest, match=f"more than the maximum of {MOST_PARAMETERS}"):
        json_generate.decode(body, MODEL, 100)


def test_a_long_string_among_numbers_takes_no_memory_for_each_of_them() -> None:
    """numpy would make 40,000 elements of 160 kB each, 6.4 GB, before it is told to refuse."""
    data = ["x" * 40_000, *[1] * 40_000]
    entry = {"name": "F", "datatype": "FP32", "shape": [len(data)], "data": data}
    tracemalloc.start()
    try:
        with pytest.raises(ServingError, match="non-number as number"):
            json_infer.decode(json.dumps({"inputs": [entry]}).encode(), None, MODEL, 100)
        assert tracemalloc.get_traced_memory()[1] < 50 << 20
    finally:
        tracemalloc.stop()

"""REST bodies: what goes in comes out bit for bit; what is wrong is refused in Triton's words."""

import json
import struct
from typing import Any

import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as npst

from repository.config.tensors import BY_NAME
from repository.model import ModelConfig
from server.admit import bytes_array, read_terms
from server.codec.json_infer import encode
from server.codec.output_format import PLAIN, OutputFormat
from server.errors import Internal, InvalidRequest, RequestTooLarge, ServingError, Unsupported
from server.signature import compile_signature
from support.json_infer import NUMERIC, ask, bits, response, signature, tensor


@settings(deadline=None, max_examples=30)
@given(st.data())
@pytest.mark.parametrize("name", NUMERIC)
def test_every_data_type_survives_the_binary_form_bit_for_bit(name: str, data: Any) -> None:
    row = BY_NAME[name]
    raw = data.draw(st.binary(min_size=0, max_size=24 * row.itemsize))
    raw = raw[: len(raw) - len(raw) % row.itemsize]
    if name == "BOOL":
        raw = bytes(byte & 1 for byte in raw)
    count = len(raw) // row.itemsize
    entry = tensor(
        datatype=name, shape=[count], data=None, parameters={"binary_data_size": len(raw)}
    )
    asked = ask({"inputs": [entry]}, signature(name), raw)
    array = asked.inputs["X"]
    assert array.dtype == row.dtype
    assert bits(array) == raw
    encoded = encode(response(array), OutputFormat(binary=True))
    if raw:
        assert b"".join(bytes(part) for part in encoded.parts)[encoded.header_length :] == raw


@settings(deadline=None, max_examples=30)
@given(st.data())
@pytest.mark.parametrize("name", [name for name in NUMERIC if name not in ("FP16", "BF16")])
def test_every_data_type_survives_json_both_ways(name: str, data: Any) -> None:
    dtype = BY_NAME[name].dtype
    array = data.draw(npst.arrays(dtype, npst.array_shapes(min_dims=1, max_dims=1, max_side=9)))
    (part,) = encode(response(array), PLAIN).parts
    rendered = json.loads(bytes(part))["outputs"][0]
    entry = tensor(datatype=name, shape=list(array.shape), data=rendered["data"])
    again = ask({"inputs": [entry]}, signature(name)).inputs["X"]
    np.testing.assert_array_equal(again, array)


@pytest.mark.parametrize("name", ["FP16", "BF16"])
def test_half_precision_has_a_json_form(name: str) -> None:
    array = np.array([0.5, -2.0, 65504.0 if name == "FP16" else 1e30], BY_NAME[name].dtype)
    (part,) = encode(response(array), PLAIN).parts
    rendered = json.loads(bytes(part))["outputs"][0]["data"]
    entry = tensor(datatype=name, shape=[3], data=rendered)
    assert bits(ask({"inputs": [entry]}, signature(name)).inputs["X"]) == bits(array)


def test_nan_and_infinity_are_written_and_read_as_tokens() -> None:
    array = np.array([np.nan, np.inf, -np.inf, 1], np.float32)
    (part,) = encode(response(array), PLAIN).parts
    assert b'"data":[NaN,Infinity,-Infinity,1.0]' in bytes(part)
    text = (
        b'{"inputs":[{"name":"X","datatype":"FP32","shape":[4],"data":[NaN,Infinity,-Infinity,1]}]}'
    )
    np.testing.assert_array_equal(ask(text, signature()).inputs["X"], array)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.binary(max_size=6), max_size=6))
def test_byte_strings_survive_the_binary_form(elements: list[bytes]) -> None:
    blob = b"".join(struct.pack("<I", len(one)) + one for one in elements)
    entry = tensor(
        datatype="BYTES",
        shape=[len(elements)],
        data=None,
        parameters={"binary_data_size": len(blob)},
    )
    array = ask({"inputs": [entry]}, signature("BYTES"), blob).inputs["X"]
    assert array.tolist() == elements
    encoded = encode(response(array), OutputFormat(binary=True))
    body = b"".join(bytes(part) for part in encoded.parts)
    assert body[encoded.header_length or len(body) :] == blob


def test_text_travels_as_utf8_and_other_bytes_have_no_json_form() -> None:
    entry = tensor(datatype="BYTES", shape=[2], data=["ä", ""])
    array = ask({"inputs": [entry]}, signature("BYTES")).inputs["X"]
    assert array.tolist() == ["ä".encode(), b""]
    (part,) = encode(response(array), PLAIN).parts
    assert json.loads(bytes(part))["outputs"][0]["data"] == ["ä", ""]
    with pytest.raises(InvalidRequest, match="binary_data"):
        encode(response(bytes_array([b"\xff"], [1])), PLAIN)


def test_nested_data_counts_elements_not_nesting() -> None:
    entry = tensor(shape=[2, 3], data=[[1, 2], [3, 4, 5, 6]])
    array = ask({"inputs": [entry]}, signature(dims="-1,-1")).inputs["X"]
    assert array.tolist() == [[1, 2, 3], [4, 5, 6]]


def test_outputs_are_binary_where_asked() -> None:
    by_name = {"outputs": [{"name": "Y", "parameters": {"binary_data": True}}]}
    everything = {"parameters": {"binary_data_output": True}}
    entry_wins = {**everything, "outputs": [{"name": "Y"}]}
    assert ask({"inputs": [tensor()], **by_name}, signature()).form.binary == {"Y"}
    assert ask({"inputs": [tensor()], **everything}, signature()).form.binary is True
    assert not ask({"inputs": [tensor()], **entry_wins}, signature()).form.binary


def test_priority_timeout_and_sequence_are_read_and_the_rest_goes_to_the_model() -> None:
    parameters = {"priority": 2, "timeout": 500, "sequence_id": 7, "sequence_start": True, "k": "v"}
    asked = ask({"id": "r", "inputs": [tensor()], "parameters": parameters}, signature())
    assert (asked.id, read_terms(asked.parameters)) == ("r", ((7, True, False), 2, 500, {"k": "v"}))


NOTHING = "But no field is set"
REFUSALS: list[tuple[str, Any, bytes | None, type[ServingError], str]] = [
    ("malformed", b'{"inputs":[', None, InvalidRequest, "failed to parse the request JSON buffer"),
    ("no object", b"[]", None, InvalidRequest, "failed to parse the request JSON buffer"),
    ("no inputs", {}, None, InvalidRequest, "missing required field 'inputs'"),
    ("inputs", {"inputs": 3}, None, Internal, "attempt to access JSON non-array as array"),
    ("id", {"id": 3, "inputs": []}, None, Internal, "Unable to parse 'id'"),
    (
        "missing input",
        {"inputs": []},
        None,
        InvalidRequest,
        "[request id: <id_unknown>] expected 1 inputs but got 0 inputs for model 'm'. Got input(s) "
        "[], but missing required input(s) ['X']. Please provide all required input(s).",
    ),
    (
        "unknown input",
        {"id": "a", "inputs": [tensor(name="Q")]},
        None,
        InvalidRequest,
        "[request id: a] unexpected inference input 'Q' for model 'm'",
    ),
    (
        "duplicate input",
        {"inputs": [tensor(), tensor()]},
        None,
        InvalidRequest,
        "input 'X' already exists in request",
    ),
    (
        "data type",
        {"inputs": [tensor(datatype="INT32")]},
        None,
        InvalidRequest,
        "inference input 'X' data-type is 'INT32', but model 'm' expects 'FP32'",
    ),
    (
        "rank",
        {"inputs": [tensor(shape=[1, 2])]},
        None,
        InvalidRequest,
        "unexpected shape for input 'X' for model 'm'. Expected [-1], got [1,2]. ",
    ),
    (
        "negative dim",
        {"inputs": [tensor(shape=[-2])]},
        None,
        Internal,
        "Unable to parse 'shape': attempt to access JSON non-unsigned-integer as unsigned-integer",
    ),
    (
        "too few",
        {"inputs": [tensor(shape=[3])]},
        None,
        Internal,
        "Failed to parse 'data' field: shape does not match true shape",
    ),
    (
        "too many",
        {"inputs": [tensor(shape=[1])]},
        None,
        Internal,
        "Unable to parse 'data': Shape does not match true shape of 'data' field",
    ),
    ("text", {"inputs": [tensor(data=["a", "b"])]}, None, Internal, "non-number as number"),
    ("null", {"inputs": [tensor(data=[None, 1])]}, None, Internal, "non-number as number"),
    (
        "no data",
        {"inputs": [tensor(data=None)]},
        None,
        InvalidRequest,
        f"Input must set only one of the following fields: 'data', 'binary_data_size' in "
        f"'parameters', 'shared_memory_region' in 'parameters'. {NOTHING}",
    ),
    (
        "two sources",
        {"inputs": [tensor(parameters={"binary_data_size": 8})]},
        b"12345678",
        InvalidRequest,
        "But set 'data' 'binary_data_size'",
    ),
    (
        "truncated",
        {"inputs": [tensor(data=None, parameters={"binary_data_size": 8})]},
        b"1234",
        InvalidRequest,
        "unexpected size for input 'X', expecting 4 additional bytes for model 'm'",
    ),
    (
        "left over",
        {"inputs": [tensor(data=None, parameters={"binary_data_size": 8})]},
        b"123456789",
        InvalidRequest,
        "unexpected additional input data for model 'm'",
    ),
    (
        "byte size",
        {"inputs": [tensor(data=None, parameters={"binary_data_size": 4})]},
        b"1234",
        InvalidRequest,
        "input byte size mismatch for input 'X' for model 'm'. Expected 8, got 4",
    ),
    (
        "unknown output",
        {"inputs": [tensor()], "outputs": [{"name": "Z"}]},
        None,
        InvalidRequest,
        "unexpected inference output 'Z' for model 'm'",
    ),
    (
        "duplicate output",
        {"inputs": [tensor()], "outputs": [{"name": "Y"}, {"name": "Y"}]},
        None,
        InvalidRequest,
        "output 'Y' already exists in request",
    ),
    (
        "reserved key",
        {"inputs": [tensor()], "parameters": {"triton_x": 1}},
        None,
        InvalidRequest,
        "parameter keys starting with 'triton_' are reserved for Triton usage",
    ),
    (
        "parameter type",
        {"inputs": [tensor()], "parameters": {"p": [1]}},
        None,
        InvalidRequest,
        "parameter 'p' has invalid type. It should be either 'int', 'bool', or 'string'.",
    ),
    (
        "shared memory",
        {"inputs": [tensor(data=None, parameters={"shared_memory_region": "r"})]},
        None,
        Unsupported,
        "Client shared memory is disabled. Start the server with '--allow-client-shm=true' to "
        "enable.",
    ),
]


@pytest.mark.parametrize(
    ("document", "blob", "kind", "text"),
    [row[1:] for row in REFUSALS],
    ids=[row[0] for row in REFUSALS],
)
def test_bad_input_is_refused_in_tritons_words(
    document: Any, blob: bytes | None, kind: type[ServingError], text: str
) -> None:
    with pytest.raises(kind) as caught:
        ask(document, signature(), blob)
    assert text in str(caught.value)


def test_integers_that_do_not_fit_are_refused_naming_value_and_range() -> None:
    entry = tensor(datatype="INT8", shape=[2], data=[1, 200])
    with pytest.raises(InvalidRequest, match="200 does not fit INT8"):
        ask({"inputs": [entry]}, signature("INT8"))
    huge = tensor(datatype="INT64", shape=[1], data=[10**400])
    with pytest.raises(ServingError):
        ask({"inputs": [huge]}, signature("INT64"))


@pytest.mark.parametrize(("name", "value"), [("FP16", 65520), ("FP32", 3.5e38)])
def test_floats_that_do_not_fit_are_refused(name: str, value: float) -> None:
    with pytest.raises(InvalidRequest, match=f"too large for {name}"):
        ask({"inputs": [tensor(datatype=name, data=[1, value])]}, signature(name))


def test_numbers_with_a_fraction_are_no_integers() -> None:
    entry = tensor(datatype="INT32", shape=[1], data=[1.5])
    with pytest.raises(Internal, match="non-INT32 integer"):
        ask({"inputs": [entry]}, signature("INT32"))


@pytest.mark.parametrize("depth", [101, 1_000, 100_000])
def test_deep_nesting_is_refused_naming_the_limit(depth: int) -> None:
    text = b'{"inputs":' + b"[" * depth + b"]" * depth + b"}"
    with pytest.raises(RequestTooLarge, match="maximum of 100 levels"):
        ask(text, signature())


def test_brackets_inside_text_are_no_nesting() -> None:
    text = json.dumps({"id": "[" * 500 + '"\\{', "inputs": [tensor()]}).encode()
    assert ask(text, signature()).id.startswith("[[")


def test_batches_are_checked_against_each_other_and_the_limit() -> None:
    text = """
        name: "m" max_batch_size: 4
        input { name: "A" data_type: TYPE_FP32 dims: [2] }
        input { name: "B" data_type: TYPE_FP32 dims: [2] }
        output { name: "Y" data_type: TYPE_FP32 dims: [2] }
    """
    model = compile_signature(text_format.Parse(text, ModelConfig()), 1)

    def both(a: int, b: int) -> dict[str, Any]:
        return {
            "inputs": [
                tensor(name="A", shape=[a, 2], data=[0] * 2 * a),
                tensor(name="B", shape=[b, 2], data=[0] * 2 * b),
            ]
        }

    assert ask(both(4, 4), model).rows == 4
    with pytest.raises(InvalidRequest, match="input 'B' batch size does not match other inputs"):
        ask(both(2, 3), model)
    with pytest.raises(InvalidRequest, match="inference request batch-size must be <= 4 for 'm'"):
        ask(both(5, 5), model)
    with pytest.raises(InvalidRequest, match="batch-size must be >= 1"):
        ask(both(0, 0), model)

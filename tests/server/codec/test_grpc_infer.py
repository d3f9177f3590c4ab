"""gRPC codec: what is decoded, what is refused in which words, and what is encoded."""

import ml_dtypes
import numpy as np
import pytest
from google.protobuf import text_format
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.grpc import model_config_pb2 as config_pb
from tritonclient.grpc import service_pb2 as pb

from repository.config.tensors import BY_NAME, DATA_TYPES
from schedulers.request import InferResponse
from server.admit import read_terms
from server.codec.grpc_infer import decode, encode
from server.errors import InvalidRequest, Unsupported
from server.signature import Signature, compile_signature

FLOATS = np.arange(16, dtype=np.float32)


def asked(message, signature):
    return decode(message, signature)


def signature(text: str) -> Signature:
    return compile_signature(text_format.Parse(text, config_pb.ModelConfig()), 3)


def one_input(datatype: str, dims: str = "-1", max_batch: int = 0) -> Signature:
    kind = config_pb.DataType.Name(BY_NAME[datatype].config)
    return signature(
        f'name: "m" max_batch_size: {max_batch} '
        f'input {{ name: "X" data_type: {kind} dims: {dims} }} '
        f'output {{ name: "Y" data_type: {kind} dims: {dims} }}'
    )


BATCHED = one_input("FP32", "16", 8)


def tensor(name="X", datatype="FP32", shape=(1, 16), **rest):
    return pb.ModelInferRequest.InferInputTensor(name=name, datatype=datatype, shape=shape, **rest)


def request(*inputs, raw=(), **rest):
    return pb.ModelInferRequest(
        model_name="m", inputs=inputs or [tensor()], raw_input_contents=raw, **rest
    )


def parameters(**kinds):
    return {key: pb.InferParameter(**{kind: value}) for key, (kind, value) in kinds.items()}


def test_raw_contents_become_a_read_only_view_of_the_shape_sent():
    decoded = asked(request(raw=[FLOATS.tobytes()], id="7"), BATCHED)
    assert decoded.inputs["X"].shape == (1, 16)
    assert decoded.inputs["X"].base is not None
    assert not decoded.inputs["X"].flags.writeable
    assert (decoded.id, decoded.rows) == ("7", 1)
    np.testing.assert_array_equal(decoded.inputs["X"][0], FLOATS)


TYPED = {
    "BOOL": ("bool_contents", [True, False, True]),
    "UINT8": ("uint_contents", [0, 255, 256 + 7]),
    "UINT16": ("uint_contents", [0, 65535, 65536 + 7]),
    "UINT32": ("uint_contents", [0, 1, 2**32 - 1]),
    "UINT64": ("uint64_contents", [0, 1, 2**64 - 1]),
    "INT8": ("int_contents", [-128, 127, 256 + 7]),
    "INT16": ("int_contents", [-32768, 32767, 65536 + 7]),
    "INT32": ("int_contents", [-(2**31), 0, 2**31 - 1]),
    "INT64": ("int64_contents", [-(2**63), 0, 2**63 - 1]),
    "FP32": ("fp32_contents", [0.5, -1.25, 3.0]),
    "FP64": ("fp64_contents", [0.1, -1.25, 3.0]),
    "BYTES": ("bytes_contents", [b"", b"a\0b", "é".encode()]),
}


@pytest.mark.parametrize("datatype", TYPED)
def test_typed_contents_of_every_type_are_taken_and_cut_to_their_low_bytes(datatype):
    field, values = TYPED[datatype]
    sent = tensor(datatype=datatype, shape=[3], contents=pb.InferTensorContents(**{field: values}))
    array = asked(request(sent), one_input(datatype)).inputs["X"]
    kind = BY_NAME[datatype]
    expected = [v % 256**kind.itemsize for v in values] if field == "uint_contents" else values
    if datatype in ("INT8", "INT16"):
        expected = [*values[:2], 7]
    assert array.dtype == kind.dtype
    assert array.tolist() == expected


@pytest.mark.parametrize("datatype", ["FP16", "BF16"])
def test_half_precision_travels_raw_only(datatype):
    sent = tensor(
        datatype=datatype, shape=[1], contents=pb.InferTensorContents(fp32_contents=[1.0])
    )
    with pytest.raises(InvalidRequest, match=f"of type 'FP32', expected datatype '{datatype}'"):
        asked(request(sent), one_input(datatype))


@pytest.mark.parametrize("kind", DATA_TYPES, ids=lambda kind: kind.name)
def test_every_type_survives_the_way_in_and_out_as_raw_contents(kind):
    if kind.name == "BYTES":
        array = np.array([b"", b"abc", b"\xff\0"], np.object_)
        raw = b"".join(len(e).to_bytes(4, "little") + e for e in array)
    else:
        array = np.array([0, 1, 1], kind.dtype)
        raw = array.tobytes()
    model = one_input(kind.name)
    decoded = asked(request(tensor(datatype=kind.name, shape=[3]), raw=[raw]), model)
    answer = encode(InferResponse("i", "m", 3, {"Y": decoded.inputs["X"]}), model)
    assert answer.raw_output_contents == [raw]
    assert answer.outputs[0].datatype == kind.name
    assert list(answer.outputs[0].shape) == [3]
    assert not answer.outputs[0].HasField("contents")


@given(st.lists(st.binary(max_size=8), max_size=12))
def test_strings_of_any_bytes_come_back_as_they_were(elements):
    model = one_input("BYTES")
    sent = tensor(
        datatype="BYTES",
        shape=[len(elements)],
        contents=pb.InferTensorContents(bytes_contents=elements),
    )
    array = asked(request(sent), model).inputs["X"]
    raw = encode(InferResponse("", "m", 3, {"Y": array}), model).raw_output_contents
    again = asked(request(tensor(datatype="BYTES", shape=[len(elements)]), raw=raw), model)
    assert again.inputs["X"].tolist() == elements


def test_answers_that_are_not_contiguous_are_sent_in_row_major_order():
    array = np.arange(6, dtype=np.float32).reshape(2, 3).T
    answer = encode(InferResponse("", "m", 3, {"Y": array}), one_input("FP32"))
    assert np.frombuffer(answer.raw_output_contents[0], np.float32).tolist() == [0, 3, 1, 4, 2, 5]


def test_bfloat16_arrives_as_bfloat16():
    raw = np.array([1.5], ml_dtypes.bfloat16).tobytes()
    decoded = asked(request(tensor(datatype="BF16", shape=[1]), raw=[raw]), one_input("BF16"))
    assert decoded.inputs["X"].astype(np.float32).tolist() == [1.5]


TWO = signature(
    'name: "m" input { name: "A" data_type: TYPE_INT32 dims: 1 } '
    'input { name: "B" data_type: TYPE_STRING dims: 1 } '
    'output { name: "Y" data_type: TYPE_INT32 dims: 1 }'
)
A = tensor("A", "INT32", [1])
A_RAW = b"\1\0\0\0"
B = tensor("B", "BYTES", [1])
ONE_FLOAT = pb.InferTensorContents(fp32_contents=[1.0])
INT = pb.InferTensorContents(int_contents=[1])
REFUSED = {
    "an input the model does not have": (
        BATCHED,
        request(tensor("Z"), raw=[FLOATS.tobytes()], id="7"),
        "[request id: 7] unexpected inference input 'Z' for model 'm'",
    ),
    "another data type": (
        BATCHED,
        request(tensor(datatype="FP64"), raw=[b""]),
        "[request id: <id_unknown>] inference input 'X' data-type is 'FP64', but model 'm' "
        "expects 'FP32'",
    ),
    "another shape": (
        BATCHED,
        request(tensor(shape=[1, 15]), raw=[b""]),
        "unexpected shape for input 'X' for model 'm'. Expected [-1,16], got [1,15]. NOTE: Setting",
    ),
    "a negative batch": (
        BATCHED,
        request(tensor(shape=[-1, 16]), raw=[FLOATS.tobytes()]),
        "for input 'X' for model 'm'",
    ),
    "too few bytes": (
        BATCHED,
        request(raw=[FLOATS.tobytes()[:60]]),
        "input byte size mismatch for input 'X' for model 'm'. Expected 64, got 60",
    ),
    "too few typed elements": (
        BATCHED,
        request(tensor(contents=ONE_FLOAT)),
        "input byte size mismatch for input 'X' for model 'm'. Expected 64, got 4",
    ),
    "a batch too large": (
        BATCHED,
        request(tensor(shape=[9, 16]), raw=[FLOATS.tobytes() * 9]),
        "inference request batch-size must be <= 8 for 'm'",
    ),
    "the same input twice": (
        BATCHED,
        request(tensor(), tensor(), raw=[FLOATS.tobytes()] * 2),
        "input 'X' already exists in request",
    ),
    "the same output twice": (
        BATCHED,
        request(
            raw=[FLOATS.tobytes()],
            outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="Y")] * 2,
        ),
        "output 'Y' already exists in request",
    ),
    "an output the model does not have": (
        BATCHED,
        request(
            raw=[FLOATS.tobytes()],
            outputs=[pb.ModelInferRequest.InferRequestedOutputTensor(name="Z")],
        ),
        "unexpected inference output 'Z' for model 'm'",
    ),
    "no data": (
        BATCHED,
        request(),
        "unable to find data for input tensor 'X' for model 'm' in request.",
    ),
    "data for one of two inputs": (
        TWO,
        request(A, B, raw=[A_RAW]),
        "unable to find data for input tensor 'B' for model 'm' in request.",
    ),
    "data for more than was named": (
        BATCHED,
        request(raw=[FLOATS.tobytes()] * 2),
        "unexpected additional input data for model 'm'",
    ),
    "raw and typed data mixed": (
        BATCHED,
        request(tensor(contents=ONE_FLOAT), raw=[FLOATS.tobytes()]),
        "contents field must not be specified when using raw_input_contents for 'X' for model 'm'",
    ),
    "typed data of another type": (
        BATCHED,
        request(tensor(contents=INT)),
        "unexpected explicit tensor data for input tensor 'X' for model 'm' of type 'INT32', "
        "expected datatype 'FP32'",
    ),
    "a missing input": (
        TWO,
        request(A, raw=[A_RAW]),
        "expected 2 inputs but got 1 inputs for model 'm'. Got input(s) ['A'], but missing "
        "required input(s) ['B']. Please provide all required input(s).",
    ),
    "too few strings": (
        TWO,
        request(
            tensor("B", "BYTES", [1], contents=pb.InferTensorContents()),
        ),
        "expected 1 string elements for inference input 'B' for model 'm', got 0",
    ),
    "a string cut short": (
        TWO,
        request(A, B, raw=[A_RAW, b"\5\0\0\0ab"]),
        "incomplete string data for inference input 'B' for model 'm'",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_served_is_refused_in_tritons_words(case):
    model, message, text = REFUSED[case]
    with pytest.raises(InvalidRequest) as refusal:
        asked(message, model)
    assert text in str(refusal.value)
    assert str(refusal.value).startswith("[request id: ")


def test_parameters_of_every_type_are_read():
    sent = parameters(
        a=("bool_param", True),
        b=("int64_param", -5),
        c=("string_param", "x"),
        d=("double_param", 0.5),
        e=("uint64_param", 2**63),
        priority=("uint64_param", 2),
        timeout=("int64_param", 900),
        sequence_id=("int64_param", 4),
        sequence_start=("bool_param", True),
        triton_enable_empty_final_response=("bool_param", True),
    )
    decoded = asked(request(raw=[FLOATS.tobytes()], parameters=sent), BATCHED)
    others = {"a": True, "b": -5, "c": "x", "d": 0.5, "e": 2**63}
    assert read_terms(decoded.parameters) == ((4, True, False), 2, 900, others)


BAD_PARAMETERS = {
    "sequence_id": (
        ("uint64_param", 5),
        "invalid value type for 'sequence_id' parameter, expected int64_param or string_param.",
    ),
    "sequence_start": (
        ("int64_param", 1),
        "invalid value type for 'sequence_start' parameter, expected bool_param.",
    ),
    "timeout": (
        ("string_param", "1"),
        "invalid value type for 'timeout' parameter, expected int64_param.",
    ),
    "priority": (("int64_param", -1), "invalid value for 'priority', expected value >= 0."),
    "triton_secret": (
        ("bool_param", True),
        "parameter keys starting with 'triton_' are reserved for Triton usage. Only the following "
        "keys starting with 'triton_' are allowed: triton_enable_empty_final_response",
    ),
}


@pytest.mark.parametrize("key", BAD_PARAMETERS)
def test_a_parameter_of_the_wrong_kind_is_refused(key):
    value, text = BAD_PARAMETERS[key]
    with pytest.raises(InvalidRequest) as refusal:
        asked(request(raw=[FLOATS.tobytes()], parameters=parameters(**{key: value})), BATCHED)
    assert str(refusal.value) == text


def test_shared_memory_is_said_to_be_disabled():
    region = parameters(shared_memory_region=("string_param", "r"))
    with pytest.raises(Unsupported, match="Client shared memory is disabled"):
        asked(request(tensor(parameters=region)), BATCHED)


def test_response_parameters_keep_their_types():
    sent = {"b": True, "i": -1, "u": 2**63, "f": 0.5, "s": "x"}
    answer = encode(InferResponse("", "m", 3, {}, sent), BATCHED)
    kinds = {key: value.WhichOneof("parameter_choice") for key, value in answer.parameters.items()}
    assert kinds == {
        "b": "bool_param",
        "i": "int64_param",
        "u": "uint64_param",
        "f": "double_param",
        "s": "string_param",
    }


def test_an_answer_names_model_version_and_request():
    answer = encode(InferResponse("id-1", "m", 3, {"Y": FLOATS[None]}), BATCHED)
    assert (answer.model_name, answer.model_version, answer.id) == ("m", "3", "id-1")
    assert list(answer.outputs[0].shape) == [1, 16]

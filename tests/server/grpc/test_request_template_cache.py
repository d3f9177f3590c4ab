"""Heads of messages: what is recognised, and what must not be."""

import numpy as np
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as config_pb
from tritonclient.grpc import service_pb2 as pb

from server.codec.grpc_infer import decode
from server.grpc.request_template_cache import MAX_HEADS, RequestTemplateCache
from server.signature import compile_signature

CONFIG = text_format.Parse(
    'name: "m" max_batch_size: 8 input { name: "X" data_type: TYPE_FP32 dims: -1 } '
    'output { name: "Y" data_type: TYPE_FP32 dims: -1 }',
    config_pb.ModelConfig(),
)
SIGNATURE = compile_signature(CONFIG, 3)
FLOATS = np.arange(40, dtype=np.float32)


def asked(message, signature):
    return decode(message, signature)


def message(array=FLOATS, rows=2, **rest):
    shape = [rows, array.size // rows]
    tensor = pb.ModelInferRequest.InferInputTensor(name="X", datatype="FP32", shape=shape)
    return pb.ModelInferRequest(
        model_name="m", inputs=[tensor], raw_input_contents=[array.tobytes()], **rest
    )


def learned(first: bytes) -> RequestTemplateCache:
    heads = RequestTemplateCache()
    parsed = pb.ModelInferRequest.FromString(first)
    heads.learn(first, parsed, asked(parsed, SIGNATURE), SIGNATURE)
    return heads


def test_a_message_with_a_known_head_becomes_what_decode_would_make_of_it():
    wanted = [pb.ModelInferRequest.InferRequestedOutputTensor(name="Y")]
    heads = learned(message(outputs=wanted, model_version="3").SerializeToString())
    again = message(FLOATS * 2, outputs=wanted, model_version="3")
    data = again.SerializeToString()
    head = heads.find(data)
    assert head is not None
    assert (head.model, head.version, head.signature) == ("m", "3", SIGNATURE)
    known, decoded = head.body(data), asked(again, SIGNATURE)
    np.testing.assert_array_equal(known.inputs["X"], decoded.inputs["X"])
    assert not known.inputs["X"].flags.writeable
    for field in ("rows", "shape_key", "id", "requested_outputs", "form"):
        assert getattr(known, field) == getattr(decoded, field), field
    assert known.parameters == decoded.parameters == {}


DIFFERENT = {
    "another size": message(FLOATS[:20]),
    "another shape": message(rows=4),
    "another model": pb.ModelInferRequest(
        model_name="n", inputs=message().inputs, raw_input_contents=[FLOATS.tobytes()]
    ),
    "an id": message(id="1"),
}


@pytest.mark.parametrize("case", DIFFERENT)
def test_a_message_that_differs_before_its_data_is_not_recognised(case):
    heads = learned(message().SerializeToString())
    assert heads.find(DIFFERENT[case].SerializeToString()) is None


NEVER = {
    "an id": message(id="1").SerializeToString(),
    "parameters": message(parameters={"p": pb.InferParameter(int64_param=1)}).SerializeToString(),
    "something unknown behind the data": message().SerializeToString() + b"\xfa\x07\x01x",
    "something unknown that looks like data": (
        message().SerializeToString() + b"\xfa\x07\xa3\x01\x3a\xa0\x01" + FLOATS.tobytes()
    ),
    "a head too long to keep": message(model_version="0" * 2000 + "3").SerializeToString(),
}


@pytest.mark.parametrize("case", NEVER)
def test_what_cannot_stand_for_others_is_not_learned(case):
    assert learned(NEVER[case]).find(NEVER[case]) is None


def test_heads_are_bounded():
    heads = RequestTemplateCache()
    for size in range(1, MAX_HEADS + 10):
        one = message(np.zeros(size, np.float32), rows=1)
        data = one.SerializeToString()
        heads.learn(data, one, asked(one, SIGNATURE), SIGNATURE)
        assert heads.find(data) is not None
    assert heads.find(message(np.zeros(1, np.float32), rows=1).SerializeToString()) is None

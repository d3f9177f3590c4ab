"""Responses written from what they have in common are those that protobuf writes."""

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as config_pb

from backends.seam import Tensors
from schedulers.request import NO_PARAMETERS, InferResponse
from server.codec.classification import TopClasses
from server.codec.grpc_infer import encode
from server.codec.output_format import PLAIN, OutputFormat
from server.grpc.response_template_cache import MAX_TEMPLATES, ResponseTemplateCache
from server.signature import Signature, compile_signature


def signature_of(datatype: str, version: int = 3) -> Signature:
    config = text_format.Parse(
        'name: "mö" max_batch_size: 8 input { name: "X" data_type: TYPE_FP32 dims: -1 } '
        f'output {{ name: "Y" data_type: TYPE_{datatype} dims: -1 }} '
        'output { name: "Z" data_type: TYPE_FP32 dims: -1 }',
        config_pb.ModelConfig(),
    )
    return compile_signature(config, version)


def response(outputs: Tensors, parameters: Mapping[str, Any] = NO_PARAMETERS, name: str = ""):
    return InferResponse(name, "mö", 3, outputs, parameters)


def assert_same(
    cache: ResponseTemplateCache,
    one: InferResponse,
    signature: Signature,
    form: OutputFormat = PLAIN,
) -> bool:
    """And whether it is known once it was learnt."""
    plain = encode(one, signature, form).SerializeToString()
    assert cache.find(one, signature, form) in (b"", plain)
    cache.learn(one, signature, form)
    found = cache.find(one, signature, form)
    assert found in (b"", plain)
    return bool(found)


ARRAYS = {
    "FP32": np.arange(6, dtype=np.float32).reshape(2, 3),
    "FP64": np.arange(6, dtype=np.float64)[::2],
    "INT8": np.zeros((1, 0), np.int8),
    "BF16": np.zeros(60_000, ml_dtypes.bfloat16),
    "BOOL": np.array([[True, False]]),
    "INT64": np.arange(20_000, dtype=np.int64).reshape(2, -1).T,
    "UINT16": np.arange(60_000, dtype=np.uint16),
    "STRING": np.array([[b"a", b"bc"]], dtype=object),
}


@pytest.mark.parametrize("datatype", ARRAYS)
@pytest.mark.parametrize("name", ["", "7", "ö" * 60, "x" * 127, "x" * 300])
def test_it_is_byte_for_byte_what_protobuf_writes(datatype: str, name: str) -> None:
    cache = ResponseTemplateCache()
    signature = signature_of(datatype)
    known = assert_same(cache, response({"Y": ARRAYS[datatype]}, name=name), signature)
    assert known == (datatype != "STRING" and len(name) < 300)


def test_so_is_a_response_of_other_shape_with_parameters_or_two_tensors() -> None:
    cache, signature = ResponseTemplateCache(), signature_of("FP32")
    floats = np.arange(4, dtype=np.float32)
    assert_same(cache, response({"Y": floats}), signature)
    assert_same(cache, response({"Y": floats.reshape(2, 2)}), signature)
    assert_same(cache, response({"Z": floats}), signature)
    assert_same(cache, response({"Y": floats, "Z": floats}), signature)
    assert_same(cache, response({"Y": floats}, {"a": 1}), signature)
    assert_same(cache, response({}), signature)
    assert_same(
        cache,
        response({"Y": floats}),
        signature,
        OutputFormat(tops={"Y": TopClasses(2, False, (), "%f")}),
    )


def test_another_version_s_response_is_not_taken_for_it() -> None:
    cache, floats = ResponseTemplateCache(), np.arange(4, dtype=np.float32)
    for version in range(1, 5):
        one = InferResponse("", "mö", version, {"Y": floats})
        assert_same(cache, one, signature_of("FP32", version))


def test_no_more_than_so_many_shapes_are_kept() -> None:
    cache, signature = ResponseTemplateCache(), signature_of("FP32")
    for size in range(MAX_TEMPLATES + 5):
        assert_same(cache, response({"Y": np.zeros(size, np.float32)}), signature)
    assert len(cache._templates) <= MAX_TEMPLATES

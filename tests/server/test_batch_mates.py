"""Which requests of a model may share a batch: those of one `shape_key`."""

import numpy as np
from google.protobuf import text_format

from repository.config.tensors import Array
from repository.model import ModelConfig
from server.admit import admit
from server.signature import compile_signature

CONFIG = """
name: "m"
backend: "onnxruntime"
max_batch_size: 8
input { name: "a" data_type: TYPE_FP32 dims: [ -1 ] }
input { name: "b" data_type: TYPE_FP32 dims: [ -1 ] optional: true }
input { name: "c" data_type: TYPE_FP32 dims: [ -1 ] allow_ragged_batch: true }
output { name: "y" data_type: TYPE_FP32 dims: [ -1 ] }
"""
SIGNATURE = compile_signature(text_format.Parse(CONFIG, ModelConfig()), 1)


def key(**sizes: int) -> object:
    inputs: dict[str, Array] = {
        name: np.zeros((1, size), np.float32) for name, size in sizes.items()
    }
    _, found = admit(SIGNATURE, inputs)
    return found


def test_requests_share_a_batch_only_with_those_that_have_the_same_optional_inputs() -> None:
    assert key(a=2, b=2, c=2) != key(a=2, c=2)
    assert key(a=2, c=2) == key(a=2, c=2)


def test_shapes_must_be_equal_but_for_ragged_inputs() -> None:
    assert key(a=2, b=2, c=2) == key(a=2, b=2, c=9)
    assert key(a=2, b=2, c=2) != key(a=3, b=2, c=2)

"""What a completed config is compiled to."""

import pytest
from google.protobuf import text_format

from repository.model import ModelConfig
from server.signature import compile_signature

RAGGED_INPUT = """
max_batch_size: 8
input { name: "x" data_type: TYPE_FP32 dims: -1 allow_ragged_batch: true }
output { name: "y" data_type: TYPE_FP32 dims: -1 }
"""


@pytest.mark.parametrize(("backend", "ragged"), [("onnxruntime", True), ("openvino", False)])
def test_shapes_differ_within_a_batch_where_config_and_backend_allow_it(
    backend: str, ragged: bool
) -> None:
    config = text_format.Parse(f'backend: "{backend}" {RAGGED_INPUT}', ModelConfig())
    assert compile_signature(config, 1).inputs["x"].ragged is ragged
    config.input[0].allow_ragged_batch = False
    assert not compile_signature(config, 1).inputs["x"].ragged

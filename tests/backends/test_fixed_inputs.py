"""Which models' requests of as many rows are all as large, whoever sends them."""

from pathlib import Path

import pytest
from google.protobuf import text_format
from tritonclient.grpc import model_config_pb2 as pb

from backends.fixed_inputs import has_fixed_inputs
from backends.identity import IdentityBackend
from support.runtime import CPU, make_version

FIXED = """
max_batch_size: 8
input { name: "X" data_type: TYPE_FP32 dims: [ 4, 4 ] }
output { name: "Y" data_type: TYPE_FP32 dims: [ 4, 4 ] }
"""
OTHERS = {
    "lengths that a client chooses": FIXED.replace("4, 4", "4, -1"),
    "strings": FIXED.replace("TYPE_FP32", "TYPE_STRING"),
    "strings among the outputs": FIXED + "output { data_type: TYPE_STRING dims: 1 }",
    "more bytes than are copied in passing": FIXED.replace("4, 4", "1024, 1024"),
    "ragged batches": FIXED.replace("dims: [ 4, 4 ]", "dims: [ 4 ] allow_ragged_batch: true", 1),
    "a state that grows": FIXED
    + 'sequence_batching { state { input_name: "S" data_type: TYPE_FP32 dims: -1 } }',
    "a correlation id of any length": FIXED
    + 'sequence_batching { control_input { name: "ID" control { kind: CONTROL_SEQUENCE_CORRID '
    "data_type: TYPE_STRING } } }",
}


def test_inputs_of_fixed_dims_are_fixed() -> None:
    assert has_fixed_inputs(text_format.Parse(FIXED, pb.ModelConfig()))


@pytest.mark.parametrize("config", OTHERS.values(), ids=OTHERS.keys())
def test_inputs_are_not_fixed_with(config: str) -> None:
    assert not has_fixed_inputs(text_format.Parse(config, pb.ModelConfig()))


@pytest.mark.parametrize(("dims", "safe"), [("4", True), ("-1", False)])
def test_identity_runs_on_the_loop_where_its_inputs_are_fixed(
    tmp_path: Path, dims: str, safe: bool
) -> None:
    version = make_version(tmp_path, FIXED.replace("4, 4", dims))
    (instance,) = IdentityBackend().load(version, CPU, 1).instances
    assert getattr(instance, "loop_safe", False) is safe

"""The rules a config must keep, one broken rule at a time."""

from pathlib import Path

import pytest

from repository.config.normalise import normalise, validate_complete
from repository.config.positions import Positions
from repository.config.read import parse
from repository.config.tensors import DATA_TYPES
from repository.config.validate import validate
from repository.findings import MOST_FINDINGS
from repository.model import ModelConfig
from support.repository import CONFIG

WHERE = Path("models/m/config.pbtxt")


def findings(text: str) -> list[str]:
    found = validate(parse(text, WHERE), Positions(WHERE, text), "m")
    return [str(finding).removeprefix(f"{WHERE}:") for finding in found]


IN = 'input { name: "x" data_type: TYPE_FP32 '
QUEUE = "max_batch_size: 8 dynamic_batching { "

BROKEN = {
    QUEUE + "priority_levels: 18446744073709551615 default_priority_level: 1 }": (
        "1:38 E103 dynamic_batching.priority_levels must be at most 1024 (levels, each a queue of "
        "its own), got 18446744073709551615"
    ),
    "max_batch_size: 2000000000": "E103 max_batch_size must be at most 1000000 (rows), got 2000000",
    QUEUE + "max_queue_delay_microseconds: 18446744073709551615 }": "must be at most 86400000000",
    QUEUE + "default_queue_policy { default_timeout_microseconds: 18446744073709551615 } }": (
        "default_queue_policy.default_timeout_microseconds must be at most 2678400000000"
    ),
    QUEUE
    + "preferred_batch_size: ["
    + ", ".join(["4"] * 1025)
    + "] }": "at most 1024 (sizes), got",
    "instance_group { count: 1000 } instance_group { count: 25 }": (
        "E130 instance_group[1].count 25 makes 1025 instances with those of the groups before it"
    ),
    "instance_group { count: 600 gpus: [0, 1] }": "instance_group[0].count 600 makes 1200 instanc",
    IN + "dims: [" + ", ".join(["1"] * 33) + "] }": "input[0].dims must be at most 32 (dimensions)",
    IN + "dims: [1048576, 1048576, 2] }": "E114 input[0].dims [1048576, 1048576, 2] holds more th",
    "model_metrics { metric_control { histogram_options { buckets: [5, 2] } } }": (
        "model_metrics.metric_control[0].histogram_options.buckets must ascend, got [5.0, 2.0]"
    ),
    "model_metrics { metric_control { histogram_options { buckets: [nan] } } }": "each be above 0",
    'parameters { key: "intra_op_thread_count" value { string_value: "100000" } }': (
        "1:1 E103 parameter intra_op_thread_count must be at most 1024 (threads of one operator), "
        "got '100000'"
    ),
    'model_warmup { name: "w" count: 4000000000 }': "model_warmup[0].count must be at most 100000",
    'name: "other"': "1:1 E110 name must be the folder's name 'm' or absent, got 'other'",
    "\n  max_batch_size: -4": "2:3 E103 max_batch_size must be ≥ 0, got -4",
    'input { name: "x" data_type: 99 }': "1:19 E104 input[0].data_type has no value 99",
    "instance_group { kind: 9 }": "1:18 E104 instance_group[0].kind has no value 9",
    "input { dims: 1 }": "1:1 E112 input[0] has no name",
    'output { name: "a" } output { name: "a" }': "1:31 E112 output[1] 'a' is an output already",
    IN + "dims: [ 2, 0 ] }": "1:51 E114 input[0].dims[1] must be ≥ 1, or -1 for any size, got 0",
    IN + "dims: [-2] }": "1:40 E114 input[0].dims[0] must be ≥ 1",
    IN + "dims: [4] reshape { shape: [3] } }": "E115 input[0].reshape [3] must hold as many elem",
    IN + "dims: [2, -1, 3] reshape { shape: [3, -1, 2] } }": "E115 input[0].reshape [3, -1, 2]",
    "max_batch_size: 0 " + IN + "dims: 1 reshape {} }": "E115 input[0].reshape may be empty only",
    IN + "reshape { shape: [3] } }": "E115 input[0].reshape [3] needs dims to reshape from",
    IN + "format: FORMAT_NHWC dims: [1, 2] }": "E116 input[0].format FORMAT_NHWC needs 3 dims",
    'output { name: "y" label_filename: "../x" }': "E117 output[0].label_filename must stay",
    'default_model_filename: ".x/m.onnx"': "1:1 E119 default_model_filename must not name a hidden",
    'output { name: "y" label_filename: ".labels" }': "E119 output[0].label_filename must not name",
    'model_operations { op_library_filename: "a/.b" }': "E119 model_operations.op_library_filename",
    'model_operations { op_library_filename: "../o.so" }': "must stay inside the model's folder",
    'default_model_filename: "/etc/x"': "1:1 E117 default_model_filename must stay inside",
    IN + "is_shape_tensor: true }": "E118 input[0].is_shape_tensor is for TensorRT",
    "max_batch_size: 0 dynamic_batching {}": "1:19 E120 dynamic_batching needs max_batch_size >",
    QUEUE + "preferred_batch_size: [4, 16] }": (
        "1:64 E121 dynamic_batching.preferred_batch_size[1] must be ≤ max_batch_size 8, got 16"
    ),
    QUEUE + "preferred_batch_size: 0 }": "E121 dynamic_batching.preferred_batch_size[0] must be ≥",
    QUEUE + "priority_levels: 2 }": "E122 dynamic_batching.default_priority_level must be from 1",
    QUEUE + "priority_queue_policy { key: 1 } }": "needs priority_levels ≥ 1",
    QUEUE + "priority_levels: 2 default_priority_level: 1 priority_queue_policy { key: 5 } }": (
        "1:83 E122 dynamic_batching.priority_queue_policy key must be from 1 to priority_levels 2"
    ),
    QUEUE + "preserve_ordering: true priority_levels: 2 default_priority_level: 1 }": (
        "1:38 E123 dynamic_batching.preserve_ordering excludes more than one priority level, got 2"
    ),
    QUEUE
    + "preserve_ordering: true default_queue_policy "
    + "{ timeout_action: DELAY default_timeout_microseconds: 1 } }": "excludes DELAY, which def",
    "response_cache { enable: true } model_transaction_policy { decoupled: true }": (
        "1:18 E125 response_cache.enable excludes model_transaction_policy.decoupled"
    ),
    'instance_group { name: "a\\nb" }': "1:18 E130 instance_group[0].name must be printable text",
    "instance_group { count: -1 }": "1:18 E130 instance_group[0].count must be ≥ 1, or absent",
    "instance_group { kind: KIND_CPU gpus: [0] }": "1:33 E130 instance_group[0] is KIND_CPU and",
    "instance_group { kind: KIND_GPU gpus: [0, -1] }": "E130 instance_group[0].gpus[1] must be ≥",
    "version_policy { specific {} }": "1:18 E131 version_policy.specific must list at least one",
    "version_policy { specific { versions: [3, 0] } }": (
        "1:43 E103 version_policy.specific.versions[1] must be ≥ 1, got 0"
    ),
    'platform: "ensemble"': "1:1 E140 ensemble scheduling must be set for ensemble ''",
    "sequence_batching { direct { minimum_slot_utilization: 1.5 } }": (
        "1:30 E128 sequence_batching.direct.minimum_slot_utilization must be from 0 to 1, got 1.5"
    ),
    "sequence_batching { oldest { max_candidate_sequences: 0 } }": (
        "E128 sequence_batching.oldest.max_candidate_sequences must be from 1 to 1000000, got 0"
    ),
    "max_batch_size: 4 sequence_batching { oldest { max_candidate_sequences: 1 "
    "preferred_batch_size: [ 5 ] } }": (
        "preferred_batch_size[0] must be from 1 to max_batch_size 4, got 5"
    ),
    "sequence_batching { control_input { name: 'S' control { kind: CONTROL_SEQUENCE_START "
    "int32_false_true: [ 0 ] } } }": (
        "control[0].int32_false_true needs two values, for false and for true, got 1"
    ),
    "sequence_batching { control_input { name: 'S' control { kind: CONTROL_SEQUENCE_START } } }": (
        "E126 sequence_batching.control_input[0].control[0] (CONTROL_SEQUENCE_START) needs one of "
        "int32_false_true, fp32_false_true, bool_false_true, got none"
    ),
    "sequence_batching { control_input { name: 'C' control { kind: CONTROL_SEQUENCE_CORRID "
    "data_type: TYPE_FP32 } } }": (
        "data_type must be one of TYPE_UINT64, TYPE_INT64, TYPE_UINT32, TYPE_INT32, TYPE_STRING"
    ),
    "sequence_batching { control_input { control { kind: CONTROL_SEQUENCE_READY "
    "bool_false_true: [ false, true ] } } }": (
        "1:21 E126 sequence_batching.control_input[0] needs the name of an input of the model"
    ),
    "sequence_batching { state { input_name: 'a' output_name: 'b' dims: 1 } }": (
        "E127 sequence_batching.state[0] needs a data_type"
    ),
    "sequence_batching { state { input_name: 'a' output_name: 'b' data_type: TYPE_FP32 dims: 2 "
    "initial_state { zero_data: true dims: 3 name: 'z' } } }": (
        "initial_state[0].dims are [3], which do not fit the state's [2]"
    ),
    "sequence_batching { state { input_name: 'a' output_name: 'b' data_type: TYPE_FP32 dims: 2 } } "
    "model_transaction_policy { decoupled: true }": (
        "E129 sequence_batching.state excludes model_transaction_policy.decoupled"
    ),
    'platform: "ensemble" ensemble_scheduling {}': "1:22 E141 must specify 'step' for ensemble ''",
    "batch_input { source_input: ['a', 'b'] target_name: 't' data_type: TYPE_FP32 }": (
        "1:15 E124 batch_input[0]: batch input kind 'BATCH_ELEMENT_COUNT' expects 1 source input, "
        "got 2"
    ),
    "batch_input { source_input: 'x' target_name: 't' data_type: TYPE_INT64 }": (
        "1:50 E124 batch_input[0]: batch input data type must be TYPE_INT32 or TYPE_FP32"
    ),
    "batch_input { source_input: 'x' data_type: TYPE_FP32 }": "1:1 E124 batch_input[0] has no targ",
    IN + "dims: 1 } batch_input { source_input: 'x' target_name: 'x' }": (
        "E124 batch_input[0].target_name[0] 'x' is an input already"
    ),
    IN + "dims: 1 optional: true } batch_input { source_input: 'x' target_name: 't' }": (
        "1:79 E124 batch_input[0]: source input 'x' is optional; a request without it has no shape"
    ),
    "backend: 'python' batch_input { source_input: 'z' target_name: 't' }": (
        "1:33 E124 batch_input[0]: unknown source input name 'z'"
    ),
    "max_batch_size: 0 batch_input { source_input: 'x' target_name: 't' }": (
        "1:19 E124 batch_input[0] needs max_batch_size > 0, got 0"
    ),
    "output { name: 'y' } batch_output { source_input: 'x' target_name: 'z' }": (
        "1:55 E124 batch_output[0]: unknown target output name 'z'"
    ),
    "batch_output { source_input: 'x' target_name: ['y', 'y'] }": (
        "E124 batch_output[0]: target output name 'y' can only be specified once"
    ),
    "batch_output { target_name: 'y' }": (
        "1:1 E124 batch_output[0]: batch output kind 'BATCH_SCATTER_WITH_INPUT_SHAPE' expects 1 "
        "source input, got 0"
    ),
    "backend: 'python' " + IN + "dims: 1 } batch_output { source_input: 'x' }": (
        "E124 batch_output[0] has no meaning for a python model"
    ),
    IN
    + "dims: -1 } output { name: 'y' dims: [-1, -1] } "
    + "batch_output { source_input: 'x' target_name: 'y' }": (
        "E124 batch_output[0] scatters output 'y' with dims [-1, -1] by input 'x' with dims [-1], "
        "which says nothing of every -1"
    ),
    "backend: 'ncnn' " + IN + "} batch_input { source_input: 'x' target_name: 't' }": (
        "1:58 E124 batch_input is not offered with the backend 'ncnn'; use onnxruntime or pytorch"
    ),
    "backend: 'onnxruntime' " + IN + "optional: true allow_ragged_batch: true }": (
        "1:63 E124 input[0].optional: unable to load model '', configuration expects model provides"
        " input with shape [-1] for ragged input 'x', which is not supported for optional input"
    ),
    "model_repository_agents {}": "1:1 E150 model_repository_agents is not offered",
    "max_batch_size: 2 model_warmup { batch_size: 3 }": (
        "1:34 E160 model_warmup[0].batch_size must be ≤ max_batch_size 2, got 3"
    ),
    'model_warmup { inputs { key: "x" value { data_type: TYPE_FP32 } } }': (
        "1:16 E160 model_warmup[0] input 'x' has no data; give one of zero_data, random_data or"
    ),
}


@pytest.mark.parametrize(("text", "expected"), BROKEN.items())
def test_a_broken_rule_is_one_finding_at_the_offending_field(text: str, expected: str):
    (finding,) = findings(text)
    assert expected in finding


GOOD = [
    CONFIG,
    "",
    "dynamic_batching { preferred_batch_size: [64] }",  # max_batch_size may come from the artefact
    'input { name: "x" }',  # type and dims too
    IN + "dims: [4, -1, 6] reshape { shape: [2, 2, -1, 3, 2] } }",
    "max_batch_size: 4 " + IN + "dims: [1] reshape { shape: [] } }",
    QUEUE + "priority_levels: 2 default_priority_level: 2 priority_queue_policy { key: 1 } }",
    QUEUE + "preserve_ordering: true default_queue_policy { timeout_action: DELAY } }",
    "version_policy { latest {} }",
    'output { name: "y" label_filename: "labels/names.txt" }',
    "instance_group { kind: KIND_GPU count: 2 gpus: [0, 1] }",
]


@pytest.mark.parametrize("text", GOOD)
def test_a_config_that_keeps_the_rules_has_no_findings(text: str):
    assert findings(text) == []


def test_an_ensemble_has_no_backend_instances_optimization_or_warmup():
    text = (
        'platform: "ensemble" ensemble_scheduling {} backend: "python" instance_group {}'
        " optimization {} model_warmup { batch_size: 1 }"
    )
    fields = [line.split()[2] for line in findings(text) if "E140" in line]
    assert fields == ["backend", "instance_group", "optimization", "model_warmup"]


def test_every_data_type_of_the_protocol_is_accepted():
    for row in DATA_TYPES:
        assert findings(f'input {{ name: "x" data_type: {row.config} dims: 1 }}') == []


def test_a_finding_about_a_config_without_text_has_no_line():
    config = ModelConfig(max_batch_size=-1)
    (finding,) = validate(config, Positions(Path("m/override")))
    assert str(finding) == "m/override E103 max_batch_size must be ≥ 0, got -1"


def test_normalise_fills_in_what_triton_fills_in_and_leaves_the_original_alone():
    config = parse("max_batch_size: 8 dynamic_batching {}", WHERE)
    made = normalise(config)
    assert list(made.dynamic_batching.preferred_batch_size) == [8]
    assert made.version_policy.latest.num_versions == 1
    assert made.optimization.input_pinned_memory.enable
    assert made.optimization.output_pinned_memory.enable
    assert config == parse("max_batch_size: 8 dynamic_batching {}", WHERE)


def test_normalise_keeps_what_is_given():
    text = (
        "max_batch_size: 8 dynamic_batching { preferred_batch_size: 4 } version_policy { all {} }"
        " optimization { input_pinned_memory { enable: false } }"
    )
    made = normalise(parse(text, WHERE))
    assert list(made.dynamic_batching.preferred_batch_size) == [4]
    assert made.version_policy.HasField("all")
    assert not made.optimization.input_pinned_memory.enable


def test_a_completed_config_needs_a_backend_tensors_types_and_dims():
    config = ModelConfig(name="m")
    config.input.add(name="x")
    codes = [finding.code for finding in validate_complete(config)]
    assert codes == ["E113", "E114", "E151", "E152"]


def test_a_completed_config_without_batch_dimension_cannot_batch_dynamically():
    config = parse(CONFIG.replace("max_batch_size: 8", "dynamic_batching {}"), WHERE)
    assert validate(config, Positions(WHERE)) == []
    assert [finding.code for finding in validate_complete(config)] == ["E120"]


def test_a_complete_config_passes():
    assert validate_complete(normalise(parse(CONFIG, WHERE))) == []


def test_of_very_many_broken_rules_the_first_are_told():
    many = parse('backend: "identity"\n' + "input { dims: 1 }\n" * 30_000, CONFIG)
    found = validate(many, Positions(CONFIG, None))
    assert [one.code for one in found[-2:]] == ["E112", "E107"]
    assert len(found) == MOST_FINDINGS + 1

"""Model configs: text to fields, findings with their places, and the rules over them."""

from collections.abc import Sequence
from pathlib import Path

from benchmarks.fuzz.target import Target, Wrong, plain
from repository.config.normalise import normalise, validate_complete
from repository.config.positions import Positions
from repository.config.read import decode, parse
from repository.config.validate import validate
from repository.errors import ConfigError

WHERE = Path("models/fuzz/config.pbtxt")

SEEDS = (
    b"""name: "fuzz" backend: "onnxruntime" max_batch_size: 8
input [ { name: "IN" data_type: TYPE_FP32 format: FORMAT_NCHW dims: [ 3, -1, 224 ]
  reshape { shape: [ 1, 3 ] } optional: true } ]
output { name: "OUT" data_type: TYPE_STRING dims: 1 label_filename: "labels.txt" }
version_policy: { latest { num_versions: 2 } }
instance_group [ { count: 2 kind: KIND_CPU }, { kind: KIND_GPU gpus: [ 0, 1 ] } ]
dynamic_batching { preferred_batch_size: [ 4, 8 ] max_queue_delay_microseconds: 100
  priority_levels: 3 default_priority_level: 2
  default_queue_policy { timeout_action: DELAY default_timeout_microseconds: 5
    allow_timeout_override: true max_queue_size: 7 }
  priority_queue_policy { key: 1 value { max_queue_size: 1 } } }
""",
    b"""backend: 'python'
sequence_batching { max_sequence_idle_microseconds: 5000000
  control_input [ { name: "START" control [ {
    kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] } ]
  state [ { input_name: "S" output_name: "T" data_type: TYPE_INT32 dims: [ -1 ]
    initial_state { data_type: TYPE_INT32 dims: [ 1 ] zero_data: true name: "i" } } ]
  oldest { max_candidate_sequences: 4 preferred_batch_size: [ 2 ] } }
model_transaction_policy { decoupled: true }
parameters { key: "a" value: { string_value: "b\\n\\x41\\101" } }
""",
    b"""platform: "ensemble" # a comment
ensemble_scheduling { step [ { model_name: "a" model_version: -1
  input_map { key: "A" value: "B" } output_map { key: "C" value: "D" } } ] }
model_warmup [ { name: "w" batch_size: 1 count: 2 inputs { key: "A" value {
  data_type: TYPE_FP32 dims: [ 1 ] random_data: true } } } ]
response_cache { enable: true } optimization { priority: PRIORITY_MAX
  execution_accelerators { cpu_execution_accelerator [ { name: "openvino" } ] } }
model_operations { op_library_filename: [ "x.so" ] } default_model_filename: "m.onnx"
rate_limiter { resources [ { name: "R" global: true count: 2 } ] priority: 1 }
""",
)


def run(data: bytes) -> None:
    """Findings are what bad text is promised; anything else raised is wrong."""
    try:
        text = decode(data, WHERE)
        config = parse(text, WHERE)
    except ConfigError as error:
        if not error.findings:
            raise Wrong("a refusal without a finding") from error
        return
    positions = Positions(WHERE, text)
    for finding in validate(config, positions, "fuzz"):
        if not finding.message:
            raise Wrong("a finding that says nothing")
    validate_complete(normalise(config), positions)


def seeds() -> Sequence[bytes]:
    return SEEDS


def lines_of(data: bytes) -> list[bytes]:
    return data.splitlines(keepends=True)


TARGET = Target(
    "config",
    ("repository.config", "repository.config.explain", "repository.config.positions",
    "repository.config.validate",  "repository.config.normalise",
    "repository.config.scheduling_rules", "repository.config.tensor_rules",  "repository.findings"),
    lambda: plain(run),
    seeds,
    split=lines_of,
)  # fmt: skip

"""Every field of a model's config: what it does here, or that it is ignored or refused, and what to
use instead. The checker refuses and notes by this table, and docs/config.md is written from it.

Source of the fields: Triton's `model_config.proto`, as `tritonclient` ships it. A test holds the
table against the descriptor. Pure.
"""

from repository.config.field_rows import ConfigField
from repository.config.field_rows import does as _does
from repository.config.field_rows import ignored as _ignored
from repository.config.field_rows import refused as _refused
from repository.config.sequence_fields import SEQUENCE_FIELDS
from repository.config.step_parameters import STEPS

_NOT_YET = "is not offered by this server yet"
_TENSORRT = "is for TensorRT, which this server does not have"
_LEAVE_OUT = "leave it out"
_OTHER_RUNTIMES = ("openvino", "litert", "ncnn", "mnn", "xgboost", "lightgbm")
_ARRAYS = ("onnxruntime", "pytorch", "identity", "python", *_OTHER_RUNTIMES, *STEPS)
_FED = ("onnxruntime", "pytorch", "python")

_MODEL = (
    _does("name", "The model's name. It must be the name of the model's folder.", "the folder's"),
    _does(
        "platform",
        "An older name of the backend: `onnxruntime_onnx`, `pytorch_libtorch`; and `ensemble`. "
        "Another one is refused, naming these.",
    ),
    _does(
        "backend",
        "What runs the model: [a runtime](runtimes.md), or [a built-in step](steps.md).",
        "by the files of the version",
    ),
    _ignored(
        "runtime",
        "names a library of Triton's, and each backend here has one runtime",
        "name the backend with backend",
    ),
    _does("version_policy", "Which of the versions in the folder are loaded.", "the newest"),
    _does("version_policy.latest", "The newest versions."),
    _does("version_policy.latest.num_versions", "How many of the newest.", "1"),
    _does("version_policy.all", "Every version there is."),
    _does("version_policy.specific", "The versions that are listed."),
    _does("version_policy.specific.versions", "Their numbers."),
    _does(
        "max_batch_size",
        "The most rows in one execution; the dimension of the batch is not written in `dims`. "
        "0: the model has no batch dimension, and `dims` are the whole shapes.",
        "what the model's file allows, at most `--default-max-batch-size`",
        _ARRAYS,
    ),
    _does(
        "default_model_filename",
        "The model's file in the version's folder.",
        "[by the backend](formats.md)",
    ),
    _ignored(
        "cc_model_filenames",
        "chooses a file by the GPU's compute capability, and one file serves all devices here",
        "name the file with default_model_filename",
    ),
    _does("metric_tags", "Labels on each of the model's metrics, with `_` before their names."),
    _does("parameters", "Settings of the backend, and of other parts; see [below](#parameters)."),
    _does("parameters.string_value", "The value, always as text."),
)

_TENSORS = (
    _does("input", "The inputs that requests carry.", "as in the model's file"),
    _does("input.name", "The name that requests use."),
    _does("input.data_type", "`TYPE_FP32` and so on.", "as in the model's file"),
    _does(
        "input.format",
        "Says which dimension is the image's channel; it must fit `dims` (three of them), and "
        "converts nothing.",
        "`FORMAT_NONE`",
    ),
    _does("input.dims", "The shape, without the batch; -1 for any size.", "as in the model's file"),
    _does("input.reshape", "Another shape for the model than for requests."),
    _does("input.reshape.shape", "The shape that the model gets; as many elements as `dims`."),
    _does(
        "input.allow_ragged_batch",
        "Requests of different shapes share a batch. The backends `onnxruntime` and `pytorch` "
        "flatten them and string them together: the model's input has the shape `[-1]`.",
        "`false`",
        (*_FED, "identity"),
    ),
    _does("input.optional", "A request may leave the input out.", "`false`"),
    _refused("input.is_shape_tensor", _TENSORRT, _LEAVE_OUT, "E118"),
    _refused("input.is_non_linear_format_io", _TENSORRT, _LEAVE_OUT, "E118"),
    _does("output", "The outputs that responses carry.", "as in the model's file"),
    _does("output.name", "The name that requests and responses use."),
    _does("output.data_type", "`TYPE_FP32` and so on.", "as in the model's file"),
    _does("output.dims", "The shape, without the batch.", "as in the model's file"),
    _does("output.reshape", "Another shape for responses than the model gives."),
    _does("output.reshape.shape", "The shape that the model gives; as many elements as `dims`."),
    _does(
        "output.label_filename",
        "A text file in the model's folder, a label a line, for requests with `classification`.",
    ),
    _refused("output.is_shape_tensor", _TENSORRT, _LEAVE_OUT, "E118"),
    _refused("output.is_non_linear_format_io", _TENSORRT, _LEAVE_OUT, "E118"),
    _does(
        "batch_input",
        "Inputs of the model that no request carries: the server fills them from the shapes of "
        "the requests in the batch; see [ragged batches](ragged-batches.md).",
        "",
        _FED,
    ),
    _does(
        "batch_input.kind",
        "What they are filled with: `BATCH_ELEMENT_COUNT`, `BATCH_ACCUMULATED_ELEMENT_COUNT`, "
        "`BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO`, `BATCH_MAX_ELEMENT_COUNT_AS_SHAPE`, "
        "`BATCH_ITEM_SHAPE`, `BATCH_ITEM_SHAPE_FLATTEN`.",
        "`BATCH_ELEMENT_COUNT`",
    ),
    _does("batch_input.target_name", "Their names."),
    _does("batch_input.data_type", "`TYPE_INT32` or `TYPE_FP32`.", "as in the model's file"),
    _does("batch_input.source_input", "The one input whose shapes count."),
    _does(
        "batch_output",
        "Outputs that come as one flat array, to be cut up into the requests' own.",
        "",
        ("onnxruntime", "pytorch"),
    ),
    _does("batch_output.kind", "`BATCH_SCATTER_WITH_INPUT_SHAPE`."),
    _does("batch_output.target_name", "Their names."),
    _does(
        "batch_output.source_input",
        "The one input by whose shapes: each -1 in the output's `dims` is its size there.",
    ),
)

_QUEUE = "dynamic_batching.default_queue_policy"
_SCHEDULING = (
    _does(
        "dynamic_batching",
        "Requests that wait are executed together.",
        "on where `max_batch_size` is left to the model's file",
        _ARRAYS,
    ),
    _does(
        "dynamic_batching.preferred_batch_size",
        "A batch of one of these sizes is not delayed.",
        "`max_batch_size`",
    ),
    _does(
        "dynamic_batching.max_queue_delay_microseconds",
        "How long a batch may wait to grow while an instance is free. While none is, it grows "
        "anyway.",
        "0",
    ),
    _does(
        "dynamic_batching.preserve_ordering",
        "Responses are sent in the order of their requests.",
        "`false`",
    ),
    _does("dynamic_batching.priority_levels", "How many priorities there are; 1 is first.", "0"),
    _does(
        "dynamic_batching.default_priority_level",
        "The priority of requests that name none; needed where there are priorities.",
    ),
    _does(_QUEUE, "How requests wait."),
    _does(
        f"{_QUEUE}.timeout_action",
        "`REJECT` requests that waited too long, or `DELAY` them behind all others.",
        "`REJECT`",
    ),
    _does(f"{_QUEUE}.default_timeout_microseconds", "How long one may wait; 0: no limit.", "0"),
    _does(
        f"{_QUEUE}.allow_timeout_override",
        "A request may ask for a shorter time with the parameter `timeout`. Without a queue policy "
        "it may as well.",
        "`false`",
    ),
    _does(
        f"{_QUEUE}.max_queue_size",
        "How many may wait; one more is refused at once.",
        "`--default-max-queue-size`",
    ),
    _does(
        "dynamic_batching.priority_queue_policy",
        "The same for each priority, by its number; its fields are those of "
        "`default_queue_policy`.",
        "`default_queue_policy`",
        covers=True,
    ),
    *SEQUENCE_FIELDS,
    _does("ensemble_scheduling", "The steps of an [ensemble](ensembles.md).", covers=True),
    _does(
        "response_cache.enable",
        "Keep responses, and give them again to the same request; needs `--cache-config`. "
        "A decoupled model and a language model refuse it.",
        "`false`",
        _ARRAYS,
    ),
    _does("response_cache", "Whether responses are kept."),
    _does("model_transaction_policy", "How many responses a request has."),
    _does(
        "model_transaction_policy.decoupled",
        "A request may have any number of responses, over gRPC streams and `generate_stream`. "
        "Other backends than python and identity send one; a language model that generates is "
        "always decoupled.",
        "`false`",
        (*_ARRAYS, "llm"),
    ),
)

_LIMITER = "instance_group.rate_limiter"
_PLACEMENT = (
    _does(
        "instance_group",
        "How many instances there are, and where; see [instances](instances.md).",
        "by the backend",
    ),
    _does("instance_group.name", "Begins the names of the group's instances.", "`MODEL_INDEX`"),
    _does(
        "instance_group.kind",
        "`KIND_CPU`, `KIND_GPU`, `KIND_AUTO` (a GPU where there is one), `KIND_MODEL` (the model "
        "places itself).",
        "`KIND_AUTO`",
    ),
    _does("instance_group.count", "How many; with several GPUs, on each.", "1"),
    _does("instance_group.gpus", "The GPUs, by number.", "all of them"),
    _does("instance_group.passive", "The group is left out.", "`false`"),
    _does(
        _LIMITER,
        "What executions of the group's instances hold, with `--rate-limit=execution_count`; see "
        "[instances](instances.md#the-rate-limiter).",
        "",
        _ARRAYS,
    ),
    _does(f"{_LIMITER}.resources", "The resources that one execution holds."),
    _does(f"{_LIMITER}.resources.name", "The resource's name."),
    _does(f"{_LIMITER}.resources.global", "All devices share it, or each has its own.", "`false`"),
    _does(f"{_LIMITER}.resources.count", "How many copies of it."),
    _does(f"{_LIMITER}.priority", "2 gets half the executions of 1, among those that wait.", "1"),
    _ignored(
        "instance_group.secondary_devices", "is for Nvidia's DLA, which no backend uses", _LEAVE_OUT
    ),
    _ignored("instance_group.profile", _TENSORRT, _LEAVE_OUT),
    _ignored(
        "instance_group.host_policy",
        "names a policy of Triton's command line",
        "bind the server itself, with --cores, taskset or numactl",
    ),
)

_LOADING = (
    _does("optimization", "How the runtime prepares and runs the model."),
    _does("optimization.graph", "How the graph is rewritten when it is loaded."),
    _does(
        "optimization.graph.level",
        "0: everything, 1: extended, -1: basic, 2: nothing.",
        "0",
        ("onnxruntime",),
    ),
    _ignored("optimization.priority", "is for runtimes that this server does not have", _LEAVE_OUT),
    _ignored(
        "optimization.cuda",
        "records CUDA graphs, which array backends here do not",
        "leave it out; language models on a GPU record theirs by themselves",
    ),
    _refused(
        "optimization.execution_accelerators",
        _NOT_YET,
        "leave it out to run on the CPU or on CUDA",
    ),
    _ignored(
        "optimization.input_pinned_memory", "is not used: inputs are read where they were received",
        _LEAVE_OUT,
    ),
    _ignored(
        "optimization.output_pinned_memory", "is not used: outputs are sent from where they are",
        _LEAVE_OUT,
    ),
    _ignored(
        "optimization.gather_kernel_buffer_threshold", "is for kernels that gather pinned memory",
        _LEAVE_OUT,
    ),
    _ignored(
        "optimization.eager_batching",
        "is always so: a batch is prepared while the one before it runs",
        _LEAVE_OUT,
    ),
    _does(
        "model_warmup",
        "Samples that each instance executes before it answers anybody. A language model refuses "
        "it: it warms itself.",
        "",
        _ARRAYS,
    ),
    _does("model_warmup.name", "For messages about the sample."),
    _does("model_warmup.batch_size", "How many requests of one row are executed together.", "1"),
    _does("model_warmup.inputs", "Each input of the sample, by its name."),
    _does("model_warmup.inputs.data_type", "As the model's."),
    _does("model_warmup.inputs.dims", "A shape that the model takes, without the batch."),
    _does("model_warmup.inputs.zero_data", "Zeros, or empty strings."),
    _does("model_warmup.inputs.random_data", "The same random numbers at each load."),
    _does("model_warmup.inputs.input_data_file", "A file of raw bytes in `MODEL/warmup/`."),
    _does("model_warmup.count", "How often the sample is executed.", "1"),
    _does("model_operations", "Code that the model needs."),
    _does(
        "model_operations.op_library_filename",
        "Libraries of custom operators in the version's or the model's folder; they run in a "
        "worker process.",
        "",
        ("onnxruntime", "pytorch"),
    ),
    _refused(
        "model_repository_agents", _NOT_YET, "leave it out; repositories can check signatures "
        "(modelyard repo change NAME --signing require)",
    ),
)  # fmt: skip

_METRICS = (
    _does("model_metrics", "The buckets of one histogram."),
    _does("model_metrics.metric_control", "One for each metric."),
    _does("model_metrics.metric_control.metric_identifier", "Which metric."),
    _does(
        "model_metrics.metric_control.metric_identifier.family",
        "`nv_inference_first_response_histogram_ms`; another one is left as it is.",
    ),
    _does("model_metrics.metric_control.histogram_options", "Of this metric."),
    _does(
        "model_metrics.metric_control.histogram_options.buckets",
        "Upper bounds in milliseconds, ascending.",
        "see [metrics](metrics.md)",
    ),
)

SECTIONS: dict[str, tuple[ConfigField, ...]] = {
    "The model": _MODEL,
    "Inputs and outputs": _TENSORS,
    "Scheduling": _SCHEDULING,
    "Instances": _PLACEMENT,
    "Loading": _LOADING,
    "Metrics": _METRICS,
}
"""Every field, in the order of the docs."""

FIELDS: dict[str, ConfigField] = {row.path: row for rows in SECTIONS.values() for row in rows}


def row_of(path: str) -> ConfigField | None:
    """The row for a field's path without indexes, or the one above it that covers it."""
    row = FIELDS.get(path)
    while row is None and path:
        path = path.rpartition(".")[0]
        above = FIELDS.get(path)
        row = above if above is not None and above.covers else None
    return row

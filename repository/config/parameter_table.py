"""Every key of a config's `parameters` that this server reads, or that Triton's backends would:
what it does, what may be written, or that it is ignored or refused, and what to use instead.

docs/config.md is written from it, and the checker notes by it what has no effect. Each backend
reads its own keys; a test holds the table against what they read. Pure.
"""

from collections.abc import Iterable
from difflib import get_close_matches
from typing import NamedTuple

from repository.config.field_rows import FieldSupport
from repository.config.step_parameters import STEP_PARAMETERS, STEPS, StepParameter


class ParameterKey(NamedTuple):
    """One key. `allowed`: what may be written; `backends`: those that read it, none named for all;
    `instead`: what to do about one that is not honoured. One that ends in ".*" stands for all that
    begin so."""

    key: str
    text: str
    allowed: str = ""
    default: str = ""
    backends: tuple[str, ...] = ()
    support: FieldSupport = FieldSupport.HONOURED
    instead: str = ""


def _onnx(key: str, text: str, allowed: str, default: str) -> ParameterKey:
    return ParameterKey(key, text, allowed, default, ("onnxruntime",))


def _llm(key: str, text: str, allowed: str, default: str = "") -> ParameterKey:
    return ParameterKey(key, text, allowed, default, ("llm",))


def _step(row: StepParameter) -> ParameterKey:
    shown = row.shown or row.default
    return ParameterKey(row.key, row.text, row.allowed, shown, (row.backend,))


def _residency(key: str, text: str, allowed: str, default: str) -> ParameterKey:
    return ParameterKey(key, text, allowed, default)


def _ignored(key: str, text: str, instead: str, *backends: str) -> ParameterKey:
    return ParameterKey(key, text, backends=backends, support=FieldSupport.IGNORED, instead=instead)


_ROLLOUTS = "of a rollout: [every key](rollouts.md#every-key)"
_SWITCH = "`0` or `1`"
_LEAVE_OUT = "leave it out"
_SAMPLING = "what holds where a request does not say"
_OTHER_RUNTIMES = ("openvino", "litert", "ncnn", "mnn", "xgboost", "lightgbm")
_THREADED = ("onnxruntime", "pytorch", "identity", "python", *_OTHER_RUNTIMES, *STEPS)

PARAMETERS: tuple[ParameterKey, ...] = (
    ParameterKey("rollout", f"Who moves a new version on, {_ROLLOUTS}.", "a mode", "no rollout"),
    ParameterKey("rollout.*", f"The plan {_ROLLOUTS}."),
    ParameterKey(
        "condition.*",
        "Of an ensemble: run a step only where a tensor says so; see "
        "[ensembles](ensembles.md#conditions).",
        "such as `confidence < 0.9`",
        "always",
    ),
    ParameterKey(
        "map.*",
        "Of an ensemble: run a step for each element of a tensor; see "
        "[ensembles](ensembles.md#maps).",
        "a tensor of the step's `input_map`",
        "once",
    ),
    ParameterKey(
        "request_body.image",
        "The input that the body of a REST request is whose Content-Type is `image/*`; see "
        "[steps](steps.md#a-picture-or-a-text-as-the-body).",
        "an input of `TYPE_STRING`",
        "none",
    ),
    ParameterKey(
        "request_body.text",
        "The same for `text/plain`.",
        "an input of `TYPE_STRING`",
        "none",
    ),
    ParameterKey(
        "execute_timeout_secs",
        "How long an execution may go on without progress; see "
        "[instances](instances.md#when-a-model-hangs).",
        "seconds, `0` for no limit",
        "`--model-execute-timeout-secs`",
        _THREADED,
    ),
    _residency(
        "load_on_demand",
        "Load it by its first request; see [memory](memory.md).",
        "`true`, `false`",
        "`--load-on-demand`",
    ),
    _residency("pinned", "Load it at once, and never evict it.", "`true`, `false`", "`false`"),
    _residency(
        "min_residency_secs",
        "Not evicted so soon after a load.",
        "seconds",
        "`--min-residency-secs`",
    ),
    _residency("keep_warm_secs", "Not evicted so soon after a request.", "seconds", "0"),
    _residency("idle_unload_secs", "Unload it when idle for so long.", "seconds", "never"),
    _residency(
        "warm_hours",
        "Hours in which it stays loaded, in the server's time zone.",
        "such as `08:00-18:00`, `Mon-Fri 08:00-18:00`",
        "none",
    ),
    ParameterKey(
        "isolation",
        "Run each instance in a process of its own; see "
        "[instances](instances.md#a-process-of-its-own).",
        "`process`",
        "what the backend does",
        _THREADED,
    ),
    ParameterKey(
        "memory_limit",
        "Memory that a worker process of the model may take, where that is less than the server's "
        "setting allows; see "
        "[instances](instances.md#when-a-model-takes-too-much-memory).",
        "bytes, such as `800MiB`",
        "`--worker-memory-limit`",
        _THREADED,
    ),
    ParameterKey(
        "network",
        "Let the worker processes of the model open connections; see [sandbox](sandbox.md).",
        "`true`",
        "none",
        _THREADED,
    ),
    ParameterKey(
        "calls",
        "Models that it may call for whoever may use it; see [scripts](scripts.md).",
        "names, separated by commas",
        "none",
        ("python",),
    ),
    _onnx("intra_op_thread_count", "Threads of one operator.", "0 to 1024", "cores ÷ instances"),
    _onnx("inter_op_thread_count", "Operators at a time.", "0 to 1024", "1"),
    _onnx("execution_mode", "0: one operator after the other, 1: several at a time.", _SWITCH, "0"),
    _onnx("enable_mem_arena", "Keep an arena of memory.", _SWITCH, "1"),
    _onnx("enable_mem_pattern", "Plan the memory of a shape that came before.", _SWITCH, "1"),
    _onnx(
        "mapped_weights",
        "Use weights in external data files where they are mapped, without packed copies; only of "
        "versions in the server's store. See [memory](memory.md#onnx-weights).",
        _SWITCH,
        "0",
    ),
    _onnx(
        "memory.enable_memory_arena_shrinkage",
        "Give memory of the arena back after each execution.",
        "devices, such as `cpu:0`",
        "none",
    ),
    ParameterKey(
        "INFERENCE_PRECISION_HINT",
        "The type that OpenVINO computes in.",
        "`f32`, `bf16` or `f16`",
        "f32",
        ("openvino",),
    ),
    ParameterKey(
        "execute_delay_ms", "Wait before each answer.", "0 to 86400000", "0", ("identity",)
    ),
    ParameterKey(
        "instance_wise_delay_multiplier",
        "Multiply the delay by the instance's number and this.",
        "0 to 86400000",
        "0",
        ("identity",),
    ),
    ParameterKey(
        "responses",
        "How often a decoupled model answers a request.",
        "0 to 86400000",
        "1",
        ("identity",),
    ),
    *map(_step, STEP_PARAMETERS),
    _llm("precision", "How weights are held.", "`float32`, `bfloat16`, `int8`, `int4`", "`int8`"),
    _llm("cache_type", "How keys and values are held.", "`auto`, `int8`", "`auto`"),
    _llm("kernels", "`torch`: plain torch instead of our kernels.", "`auto`, `torch`", "`auto`"),
    _llm("context", "Most tokens of a prompt and its answer.", "1 to 16777216", "the model's"),
    _llm("memory_budget", "Memory of the engine.", "bytes, such as `4GiB`", "as it needs"),
    _llm("threads", "Threads of one engine.", "1 to 1024", "cores ÷ instances"),
    _llm("max_running", "Answers computed at once.", "1 to 4096", "64"),
    _llm("max_waiting", "Answers that may wait.", "1 to 1048576", "256"),
    _llm("max_waiting_tokens", "Tokens of prompts that may wait.", "1 to 2147483648", "262144"),
    _llm("step_tokens", "Most tokens of one step.", "1 to 65536", "256"),
    _llm("step_milliseconds", "How long a step should take.", "1 to 86400000", "500"),
    _llm("stall_seconds", "How long a step may take.", "1 to 86400", "60"),
    _llm("pooling", "Give vectors of texts.", "`mean`, `cls`, `last`", "as the checkpoint says"),
    _llm("tool_format", "How calls of tools are written.", "see [llm](llm.md)", "`auto`"),
    _llm("content_tokens", "What control tokens in messages are.", "`text`, `control`", "`text`"),
    _llm("generation_config", "Whether that file sets defaults.", "`auto`, `ignore`", "`auto`"),
    _llm("temperature", f"Sampling: {_SAMPLING}.", "0 to 100", "the checkpoint's"),
    _llm("top_k", f"Sampling: {_SAMPLING}.", "0 to 2147483648, -1 as 0", "the checkpoint's"),
    _llm("top_p", f"Sampling: {_SAMPLING}.", "above 0 to 1", "the checkpoint's"),
    _llm("min_p", f"Sampling: {_SAMPLING}.", "0 to 1", "the checkpoint's"),
    _llm("repetition_penalty", f"Sampling: {_SAMPLING}.", "0.01 to 100", "the checkpoint's"),
    _llm("max_tokens", f"Length: {_SAMPLING}.", "1 to 2147483647", "the checkpoint's"),
    ParameterKey(
        "EXECUTION_ENV_PATH",
        "A Python environment of the model's own, a folder or an archive; see "
        "[environments](environments.md).",
        "an absolute path, or one below `$$TRITON_MODEL_DIRECTORY/`",
        "the server's own Python",
        ("python",),
    ),
    _ignored(
        "FORCE_CPU_ONLY_INPUT_TENSORS", "is always so: inputs are on the CPU", _LEAVE_OUT, "python"
    ),
    _ignored("DISABLE_OPTIMIZED_EXECUTION", "is not read", _LEAVE_OUT, "pytorch"),
    _ignored("INFERENCE_MODE", "is always so: no gradients are kept", _LEAVE_OUT, "pytorch"),
    _ignored("ENABLE_NVFUSER", "is for a fuser that PyTorch has removed", _LEAVE_OUT, "pytorch"),
    _ignored(
        "ENABLE_WEIGHT_SHARING", "is not read: an instance is a process", _LEAVE_OUT, "pytorch"
    ),
    _ignored("ENABLE_CACHE_CLEANING", "is not read", _LEAVE_OUT, "pytorch"),
)
"""In the order of the docs."""

_BY_KEY = {row.key: row for row in reversed(PARAMETERS)}
_BY_BACKEND = {(row.key, name): row for row in PARAMETERS for name in row.backends}
_OPEN = ("", "python")
"""Backends whose models may have parameters of their own; "" where it is not known yet."""


def key_row(key: str, backend: str = "") -> ParameterKey | None:
    """The row of a key, of several that of the backend; None where no backend reads it."""
    found = _BY_BACKEND.get((key, backend)) or _BY_KEY.get(key)
    return found or _BY_KEY.get(f"{key.partition('.')[0]}.*")


def without_effect(key: str, backend: str) -> str:
    """Why a key does nothing with a backend, "" where it is read or may be the model's own."""
    row = key_row(key, backend)
    if row is not None and row.support is FieldSupport.IGNORED:
        if not backend or backend in row.backends:
            return f"has no effect here: it {row.text}; {row.instead}"
        return "" if backend in _OPEN else f"has no effect with the backend '{backend}'"
    if backend in _OPEN:
        return ""
    if row is not None:
        reads = not row.backends or backend in row.backends
        return "" if reads else f"has no effect with the backend '{backend}'"
    near = get_close_matches(key, _read_by(backend), n=1, cutoff=0.8)
    return f"is not read by the backend '{backend}'; did you mean {near[0]}?" if near else ""


def _read_by(backend: str) -> Iterable[str]:
    for row in PARAMETERS:
        honoured = row.support is FieldSupport.HONOURED and not row.key.endswith(".*")
        if honoured and (not row.backends or backend in row.backends):
            yield row.key

"""Triton's parameters for ONNX Runtime, as session and run options.

Each parameter is a string in config.pbtxt: `parameters { key: "intra_op_thread_count" value:
{ string_value: "2" } }`. What cannot be honoured is refused with LoadFailed.
"""

import onnxruntime as ort

from backends.artefact import parameter, refuse
from backends.operator_library import operator_library
from backends.seam import Device
from repository.model import ModelVersion

LEVELS = {
    -1: ort.GraphOptimizationLevel.ORT_ENABLE_BASIC,
    0: ort.GraphOptimizationLevel.ORT_ENABLE_ALL,
    1: ort.GraphOptimizationLevel.ORT_ENABLE_EXTENDED,
    2: ort.GraphOptimizationLevel.ORT_DISABLE_ALL,
}
"""`optimization { graph { level } }`; 0, the default, is everything."""

MODES = (ort.ExecutionMode.ORT_SEQUENTIAL, ort.ExecutionMode.ORT_PARALLEL)
_ONLY_FATAL = 4


def session_options(version: ModelVersion, device: Device) -> ort.SessionOptions:
    """Options for one session: `device.threads` intra-op threads that never spin."""
    options = ort.SessionOptions()
    # A failure reaches the caller as an exception; ORT would print it to stderr as well.
    options.log_severity_level = _ONLY_FATAL
    options.intra_op_num_threads = _whole(version, "intra_op_thread_count", device.threads, 0, 1024)
    options.inter_op_num_threads = _whole(version, "inter_op_thread_count", 1, 0, 1024)
    options.execution_mode = MODES[_whole(version, "execution_mode", 0, 0, 1)]
    options.enable_cpu_mem_arena = bool(_whole(version, "enable_mem_arena", 1, 0, 1))
    options.enable_mem_pattern = bool(_whole(version, "enable_mem_pattern", 1, 0, 1))
    options.graph_optimization_level = _level(version)
    # By a name that ends in ".ort" it would read another format, which no check has seen.
    options.add_session_config_entry("session.load_model_format", "ONNX")
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.add_session_config_entry("session.inter_op.allow_spinning", "0")
    if _whole(version, "mapped_weights", 0, 0, 1):
        # Packed copies would take what mapping saves.
        options.add_session_config_entry("session.disable_prepacking", "1")
    for name in version.config.model_operations.op_library_filename:
        _register_operators(version, options, name)
    return options


def computes_alone(options: ort.SessionOptions) -> bool:
    """Whether a run's own thread does all of its work, waits for no other, and so has all of its
    CPU time."""
    sequential = options.execution_mode == ort.ExecutionMode.ORT_SEQUENTIAL
    return bool(sequential and options.intra_op_num_threads == 1)  # 0: as many as there are cores


def run_options(version: ModelVersion, device: Device) -> ort.RunOptions | None:
    """Options of every run, None for ORT's own: arena shrinkage, e.g. "cpu:0" or "cpu:0;gpu:0"."""
    shrinkage = parameter(version, "memory.enable_memory_arena_shrinkage")
    if not shrinkage:
        return None
    options = ort.RunOptions()
    options.add_run_config_entry("memory.enable_memory_arena_shrinkage", shrinkage)
    return options


def providers(version: ModelVersion, device: Device) -> list[str | tuple[str, dict[str, str]]]:
    """Execution providers in order of preference; LoadFailed when the device's is not built in."""
    if device.kind == "cpu":
        return ["CPUExecutionProvider"]
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        refuse(
            version,
            f"cuda:{device.index} was asked for, but this onnxruntime {ort.__version__} has no "
            "CUDAExecutionProvider; install onnxruntime-gpu, or use instance_group KIND_CPU",
        )
    return [("CUDAExecutionProvider", {"device_id": str(device.index)}), "CPUExecutionProvider"]


def _level(version: ModelVersion) -> ort.GraphOptimizationLevel:
    level = version.config.optimization.graph.level
    if level not in LEVELS:
        refuse(version, f"optimization.graph.level is {level}; allowed are -1, 0, 1 and 2")
    return LEVELS[level]


def _register_operators(version: ModelVersion, options: ort.SessionOptions, name: str) -> None:
    path = operator_library(version, name)
    try:
        options.register_custom_ops_library(str(path))
    except (RuntimeError, OSError) as error:
        refuse(version, f"onnxruntime cannot load the operators in {name}: {error}")


def _whole(version: ModelVersion, name: str, default: int, least: int, most: int) -> int:
    text = parameter(version, name)
    if not text:
        return default
    if not text.isdecimal() or len(text) > 18 or not least <= int(text) <= most:
        refuse(version, f"parameter {name} is '{text}'; it must be a number from {least} to {most}")
    return int(text)

"""How much memory an instance will take, estimated from its files before it is loaded.

A language model is computed from its config (`backends.llm.memory`). For other runtimes the figures
below are rounded up from what was measured on Linux, x86-64: 0.1 MB beyond its weights for a small
ONNX model, 25 MB for a python model's process, 122 MB for a process that has imported XGBoost or
LightGBM. What a process really takes is measured once it has loaded (`measured_bytes`); what a
session in the server's own process takes by `server.fleet.memory.meter`.
"""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

from backends.registry import runtime_for
from repository.model import ModelConfig, ModelVersion

MIB = 1 << 20
OVER_FILES = 1.2
"""Weights in memory over weights in files: packed copies, the graph."""
LOADING_OVER_GRAPH = 2
"""What onnxruntime takes while it loads a file with its weights inside, beside what stays: the
parsed file and the weights before they are packed. 58 to 84 MB were measured for 42 MB."""
SESSION, THREAD = 1 * MIB, 1 * MIB
"""An ONNX session with its arena, and each instance that shares it."""
WORKERS = {
    "pytorch": 320 * MIB,
    "python": 32 * MIB,
    "llm": 320 * MIB,
    "onnxruntime": 48 * MIB,
    "ncnn": 48 * MIB,
    "mnn": 48 * MIB,
    "xgboost": 128 * MIB,
    "lightgbm": 128 * MIB,
}
"""A worker process with its runtime imported, without the model."""
WORKER = 64 * MIB
"""That of any other backend, with `isolation`."""
CUDA_CONTEXT = 640 * MIB
"""What a language model's process takes of its GPU beside the plan: CUDA's context, the libraries'
workspaces, our kernels. An estimate that was not measured."""


class MemoryRequirement(NamedTuple):
    """Bytes of one device: what a loaded version cannot do without, what it would use if it may,
    and what its load takes beside that until it is done."""

    least: int
    wanted: int
    loading: int = 0


def need_of(version: ModelVersion, instances: int, device: str = "cpu") -> MemoryRequirement:
    """What `instances` instances of a version on one device take of it, by the device's name; reads
    the sizes of the version's files."""
    backend = version.config.backend
    hosted = runtime_for(version.config).hosted
    if backend == "identity" and not hosted:
        return MemoryRequirement(0, 0)
    if backend == "llm":
        return _language_need(version, instances, device)
    files = int(_file_bytes(version.path) * OVER_FILES)
    if hosted:
        estimate = instances * (WORKERS.get(backend, WORKER) + files)
        return MemoryRequirement(estimate, estimate)
    estimate = SESSION + files + instances * THREAD
    graph = _file_bytes(version.path, ".onnx") if backend == "onnxruntime" else 0
    return MemoryRequirement(estimate, estimate, LOADING_OVER_GRAPH * graph)


def is_inside(version: ModelVersion) -> bool:
    """Whether its instances live in the process that loads them."""
    return version.config.backend != "llm" and not runtime_for(version.config).hosted


def handed_down(version: ModelVersion, each: Iterable[tuple[str, int]]) -> ModelVersion:
    """The version with what was granted its instances in its config, where its backend is told.

    `each`: the name of a device, and the bytes that every instance has there. All instances have
    one config, so the least of them counts.
    """
    if version.config.backend != "llm":
        return version
    config = ModelConfig()
    config.CopyFrom(version.config)
    budget = min(bytes - _beside_plan(device) for device, bytes in each)
    config.parameters["memory_budget"].string_value = str(budget)
    return replace(version, config=config)


def measured_bytes(version: ModelVersion, instance: Any) -> int:
    """What an instance's own process occupies now, shared pages by share; 0 where it lives in
    this process, or cannot be asked. A language model has its plan: its cache fills later."""
    pid = getattr(instance, "pid", None)
    if pid is None or version.config.backend == "llm":
        return 0
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    sizes = (line.split() for line in lines if line.startswith("Pss:"))
    return next((int(size[1]) * 1024 for size in sizes), 0)


def _beside_plan(device: str) -> int:
    """What the process of a language model takes of a device, without the model."""
    return WORKERS["llm"] if device == "cpu" else CUDA_CONTEXT


def _language_need(version: ModelVersion, instances: int, device: str) -> MemoryRequirement:
    """A budget that the config names is a promise: not less is taken, not more asked for.

    Raises LoadFailed naming the parameter, or the field of config.json, that is wrong.
    """
    from backends.llm.plan import plan_serving  # reading checkpoints is an extra

    plan = plan_serving(version)
    least = plan.budget if plan.settings.memory_budget else plan.least
    process = _beside_plan(device)
    return MemoryRequirement(instances * (least + process), instances * (plan.budget + process))


def _file_bytes(path: Path, suffix: str = "") -> int:
    """All regular files of a version's folder whose names end so; one that vanishes meanwhile
    counts nothing."""
    total = 0
    for each in path.rglob(f"*{suffix}"):
        try:
            total += each.stat().st_size if each.is_file() else 0
        except OSError:
            continue
    return total

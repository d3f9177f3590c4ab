"""Every runtime there is: one line each. Nothing is imported before a model asks for it."""

from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, NamedTuple

from backends.errors import LoadFailed
from repository.install_lines import install_line

if TYPE_CHECKING:  # whoever only asks which backends there are needs no numpy
    from backends.seam import Backend
    from repository.model import ModelConfig


class Runtime(NamedTuple):
    """Where a backend is, and how its instances are placed unless the model's config says.

    `hosted`: each instance lives in a worker process of its own (`backends.process`), because the
    runtime holds the GIL, executes the repository's code, or must be able to die alone.
    `package`: what it needs beyond the server itself, and `extra`, which of ours installs that.
    `per_core`: with `instance_group` unset on a CPU, one single-threaded instance per core;
    otherwise one instance, with as many threads as there are cores. `steps`: an instance decides
    for itself what runs when, and is made by `schedulers.llm`. `packages`: what it imports besides
    the base packages, and `extra`: our extra that brings them.
    """

    target: str
    hosted: bool
    per_core: bool
    steps: bool = False
    packages: tuple[str, ...] = ()
    extra: str = ""


RUNTIMES: dict[str, Runtime] = {
    "identity": Runtime("backends.identity:IdentityBackend", hosted=False, per_core=True),
    "onnxruntime": Runtime(
        "backends.onnx.backend:OnnxRuntime",
        hosted=False,
        per_core=True,
        packages=("onnxruntime",),
        extra="cpu",
    ),
    "pytorch": Runtime(
        "backends.pytorch.backend:PyTorch",
        hosted=True,
        per_core=False,
        packages=("torch",),
        extra="torch",
    ),
    "python": Runtime("backends.python.backend:PythonModels", hosted=True, per_core=False),
    "openvino": Runtime(
        "backends.networks.openvino:OpenVino",
        hosted=False,
        per_core=True,
        packages=("openvino",),
        extra="openvino",
    ),
    "litert": Runtime(
        "backends.networks.litert:LiteRt",
        hosted=False,
        per_core=True,
        packages=("ai_edge_litert",),
        extra="litert",
    ),
    "ncnn": Runtime(
        "backends.networks.ncnn:Ncnn",
        hosted=True,
        per_core=False,
        packages=("ncnn",),
        extra="ncnn",
    ),
    "mnn": Runtime(
        "backends.networks.mnn:Mnn", hosted=True, per_core=False, packages=("MNN",), extra="mnn"
    ),
    "xgboost": Runtime(
        "backends.trees.xgboost:XGBoost",
        hosted=True,
        per_core=False,
        packages=("xgboost",),
        extra="trees",
    ),
    "lightgbm": Runtime(
        "backends.trees.lightgbm:LightGbm",
        hosted=True,
        per_core=False,
        packages=("lightgbm",),
        extra="trees",
    ),
    "image": Runtime(
        "backends.steps.pictures.backend:Pictures",
        hosted=False,
        per_core=True,
        packages=("PIL",),
        extra="images",
    ),
    "text": Runtime(
        "backends.steps.texts:Texts",
        hosted=False,
        per_core=True,
        packages=("tokenizers",),
        extra="text",
    ),
    "classify": Runtime("backends.steps.classify:Classify", hosted=False, per_core=True),
    "detect": Runtime("backends.steps.detection.backend:Detect", hosted=False, per_core=True),
    "llm": Runtime(
        "backends.llm.backend:LanguageModels",
        hosted=True,
        per_core=False,
        steps=True,
        packages=("torch", "tokenizers", "safetensors", "llguidance"),
        extra="llm",
    ),
}

ISOLATION, PROCESS = "isolation", "process"
"""The parameter of a config that asks for worker processes, and what it may be."""

ENSEMBLE = "ensemble"
"""The platform of a model that is a graph of others, which no backend runs."""

TORCH_FOR_CPU = "pip install torch --index-url https://download.pytorch.org/whl/cpu"
"""A wheel cannot choose the index of torch: without one, pip takes the build for CUDA."""

PLATFORMS: dict[str, str] = {
    "onnxruntime_onnx": "onnxruntime",
    "pytorch_libtorch": "pytorch",
}
"""Triton's older `platform` names, and the backend each one means."""


def runtime_of(backend: str) -> Runtime:
    """The runtime a completed config's `backend` names; raises `LoadFailed` for an unknown one."""
    runtime = RUNTIMES.get(backend)
    if runtime is None:
        raise LoadFailed(f"unknown backend '{backend}'; this server has: {', '.join(RUNTIMES)}")
    return runtime


def runtime_for(config: "ModelConfig") -> Runtime:
    """The runtime of a completed config. It is hosted in worker processes where the config asks for
    it (`parameters.isolation`), and ONNX Runtime also where the config brings native code
    (`model_operations`). Raises `LoadFailed` as `runtime_of`, and for another isolation."""
    runtime = runtime_of(config.backend)
    brings_code = config.backend == "onnxruntime" and config.model_operations.op_library_filename
    if brings_code or _is_isolated(config):
        return runtime._replace(hosted=True, per_core=False)
    return runtime


def _is_isolated(config: "ModelConfig") -> bool:
    if ISOLATION not in config.parameters:
        return False
    text = config.parameters[ISOLATION].string_value
    if text != PROCESS:
        raise LoadFailed(
            f"model '{config.name}': parameter {ISOLATION} is '{text:.80}'; it must be "
            f"'{PROCESS}', for a worker process for each instance, or be left out"
        )
    return True


def backend_of(backend: str) -> "Backend":
    """The backend itself, imported now. Raises LoadFailed where a library it needs is missing."""
    module, _, name = runtime_of(backend).target.partition(":")
    with needing_packages(backend):
        found = import_module(module)
    made: Backend = getattr(found, name)()
    return made


def require_packages(backend: str) -> None:
    """Raise LoadFailed where a package that the backend needs is not installed; imports none."""
    for package in runtime_of(backend).packages:
        if find_spec(package) is None:
            raise _missing(backend, package)


@contextmanager
def needing_packages(backend: str) -> Iterator[None]:
    """Inside, a package that is missing raises LoadFailed, which says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise _missing(backend, error.name or str(error)) from None


def _missing(backend: str, package: str) -> LoadFailed:
    remedy = install_line(runtime_of(backend).extra or "all")
    return LoadFailed(
        f"the backend '{backend}' needs the package '{package}', which is not installed; install "
        f"it with: {remedy}"
    )

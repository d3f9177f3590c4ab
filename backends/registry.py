"""Every runtime there is: one line each. Nothing is imported before a model asks for it."""

from importlib import import_module
from typing import TYPE_CHECKING, NamedTuple

from backends.errors import LoadFailed

if TYPE_CHECKING:  # whoever only asks which backends there are needs no numpy
    from backends.seam import Backend
    from repository.model import ModelConfig


class Runtime(NamedTuple):
    """Where a backend is, and how its instances are placed unless the model's config says.

    `hosted`: each instance lives in a worker process of its own (`backends.host`), because the
    runtime holds the GIL, executes the repository's code, or must be able to die alone.
    `per_core`: with `instance_group` unset on a CPU, one single-threaded instance per core;
    otherwise one instance, with as many threads as there are cores. `steps`: an instance decides
    for itself what runs when, and is made by `schedulers.llm`.
    """

    target: str
    hosted: bool
    per_core: bool
    steps: bool = False


RUNTIMES: dict[str, Runtime] = {
    "identity": Runtime("backends.identity:IdentityBackend", hosted=False, per_core=True),
    "onnxruntime": Runtime("backends.onnx.backend:OnnxRuntime", hosted=False, per_core=True),
    "pytorch": Runtime("backends.pytorch.backend:PyTorch", hosted=True, per_core=False),
    "python": Runtime("backends.python.backend:PythonModels", hosted=True, per_core=False),
    "llm": Runtime("backends.llm.backend:LanguageModels", hosted=True, per_core=False, steps=True),
}

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
    """The runtime of a completed config. ONNX Runtime is hosted in worker processes where the
    config brings native code (`model_operations`). Raises `LoadFailed` as `runtime_of`."""
    runtime = runtime_of(config.backend)
    if config.backend != "onnxruntime" or not config.model_operations.op_library_filename:
        return runtime
    return runtime._replace(hosted=True, per_core=False)


def backend_of(backend: str) -> "Backend":
    """The backend itself, imported now. Raises LoadFailed where a library it needs is missing."""
    module, _, name = runtime_of(backend).target.partition(":")
    try:
        found = import_module(module)
    except ModuleNotFoundError as error:
        raise LoadFailed(
            f"the backend '{backend}' needs '{error.name}', which is not installed; "
            "pip install 'modelyard[cpu,llm]' has everything"
        ) from None
    made: Backend = getattr(found, name)()
    return made

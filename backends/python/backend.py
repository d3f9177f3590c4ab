"""Python models: a `TritonPythonModel` from the version's model.py, in a worker of its own.

Nothing of a model's code runs before `load`, and `load` runs in the worker.
"""

import importlib.util
import json
import os
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

from backends.artefact import name_file
from backends.errors import LoadFailed
from backends.process.import_isolation import hide_house
from backends.python import api as python_api
from backends.python.config import ModelConfig, from_dictionary, to_dictionary
from backends.python.instance import PythonInstance, describe
from backends.python.shaped import (
    ShapedPythonInstance,
    ShapedStreamingInstance,
    is_shaped,
)
from backends.python.streams import StreamingPythonInstance
from backends.seam import Device, LoadedInstances
from repository.config.tensors import BY_CONFIG
from repository.install_lines import line_for_module
from repository.model import ModelConfig as ConfigMessage
from repository.model import ModelVersion

MODEL_FILE = "model.py"
_API_NAME = "triton_python_backend_utils"
_CLASS_NAME = "TritonPythonModel"


class PythonModels:
    """The backend "python"; see `backends.seam.Backend`."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ConfigMessage:
        """The config with its backend named. A python model completes the rest when it loads,
        in its worker: checking executes nothing of the repository."""
        config = ConfigMessage()
        config.CopyFrom(version.config)
        config.backend = "python"
        name_file(config, MODEL_FILE)
        return config

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        """One initialised instance; `count` must be 1, because each lives in its own process.

        From here on this process can import nothing more of ours. Raises `LoadFailed` with the
        file and line of user code that failed.
        """
        assert count == 1, "This is a bug: python instances are hosted one to a process."
        file = _model_file(version)
        # The package __init__.py may be hidden below; whatever of ours is needed is imported.
        hide_house()
        sys.modules[_API_NAME] = python_api
        model_class = _model_class(version, file)
        config = _completed(version, model_class)
        _refuse_unservable(version, config)
        completed = ModelVersion(
            version.name, version.number, version.folder, version.path, config, version.digest
        )
        instance = _initialised(completed, model_class, device)
        return LoadedInstances([instance], config)


def _where(version: ModelVersion) -> str:
    return f"model '{version.name}' version {version.number}"


def _model_file(version: ModelVersion) -> Path:
    name = version.config.default_model_filename or MODEL_FILE
    inside = os.path.normpath(name)
    file = version.path / inside
    if os.path.isabs(inside) or inside.split(os.sep, 1)[0] == os.pardir:
        raise LoadFailed(
            f"{_where(version)}: default_model_filename '{name}' leaves the version's folder"
        )
    if not file.is_file():
        there = ", ".join(sorted(entry.name for entry in version.path.iterdir())) or "nothing"
        raise LoadFailed(f"{_where(version)}: no file '{name}'; its folder has: {there}")
    return file


def _model_class(version: ModelVersion, file: Path) -> Any:
    """Import the file as `<version>.model`, so that relative imports work as in Triton, with its
    folder first on the path."""
    sys.path.insert(0, str(version.path))
    package = ModuleType(str(version.number))
    package.__path__ = [str(version.path)]
    package.__spec__ = ModuleSpec(package.__name__, None, is_package=True)
    sys.modules[package.__name__] = package
    name = f"{version.number}.{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise LoadFailed(f"{_where(version)}: '{file.name}' is not a python file (*.py)")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise _failed(version, f"'{file.name}' cannot be imported", error) from error
    model_class = getattr(module, _CLASS_NAME, None)
    if model_class is None:
        raise LoadFailed(
            f"{_where(version)}: '{file.name}' has no class '{_CLASS_NAME}'; a "
            "python model is a class of that name with a method execute"
        )
    if not hasattr(model_class, "execute"):
        raise LoadFailed(
            f"{_where(version)}: class '{_CLASS_NAME}' in '{file.name}' does not implement "
            "`execute` method."
        )
    return model_class


def _completed(version: ModelVersion, model_class: Any) -> ConfigMessage:
    if not hasattr(model_class, "auto_complete_config"):
        return version.config
    given = ModelConfig(json.dumps(to_dictionary(version.config)))
    try:
        completed = model_class.auto_complete_config(given)
    except Exception as error:
        raise _failed(version, "auto_complete_config failed", error) from error
    if not isinstance(completed, ModelConfig):
        raise LoadFailed(
            f"{_where(version)}: auto_complete_config function in model '{version.name}' must "
            f"return a valid pb.ModelConfig object, found type '{type(completed).__name__}'."
        )
    return from_dictionary(version, completed.as_dict())


def _refuse_unservable(version: ModelVersion, config: ConfigMessage) -> None:
    for kind, tensors in (("input", config.input), ("output", config.output)):
        if not tensors and kind == "output":
            raise LoadFailed(
                f"{_where(version)} has no {kind}: name them in config.pbtxt, or call "
                f"add_{kind} in auto_complete_config"
            )
        for tensor in tensors:
            if not tensor.name or tensor.data_type not in BY_CONFIG or not tensor.dims:
                raise LoadFailed(
                    f"{_where(version)}: {kind} '{tensor.name}' needs a name, a data_type and "
                    "dims, in config.pbtxt or in auto_complete_config"
                )


def _initialised(version: ModelVersion, model_class: Any, device: Device) -> PythonInstance:
    name = os.environ.get("MODELYARD_INSTANCE", f"{version.name}_0_0")
    on_gpu = device.kind == "cuda"
    arguments = {
        "model_config": json.dumps(to_dictionary(version.config)),
        "model_instance_kind": "GPU" if on_gpu else "CPU",
        "model_instance_name": name,
        "model_instance_device_id": str(device.index),
        "model_repository": str(version.folder),
        "model_version": str(version.number),
        "model_name": version.name,
    }
    try:
        model = model_class()
        if hasattr(model, "initialize"):
            model.initialize(arguments)
    except Exception as error:
        raise _failed(version, "initialize failed", error) from error
    where, cores = (f"cuda:{device.index}", 0) if on_gpu else ("cpu", device.threads)
    decoupled = version.config.model_transaction_policy.decoupled
    kinds = (PythonInstance, StreamingPythonInstance)
    if is_shaped(version.config):
        kinds = (ShapedPythonInstance, ShapedStreamingInstance)
    return kinds[decoupled](version, model, name, where, cores)


def _failed(version: ModelVersion, what: str, error: Exception) -> LoadFailed:
    if isinstance(error, ModuleNotFoundError) and (line := line_for_module(error.name or "")):
        what += f" without the package '{error.name}' (install it with: {line})"
    reason = " ".join(describe(error, version.path).split())
    return LoadFailed(f"{_where(version)}: {what}: {reason}{_remedy(error)}")


def _remedy(error: Exception) -> str:
    """What to do about a module that is not there, and that none of our extras brings."""
    if not isinstance(error, ModuleNotFoundError) or line_for_module(error.name or ""):
        return ""
    return "; install it for the server's Python, or put it beside the model's file"

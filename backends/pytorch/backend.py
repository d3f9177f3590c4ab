"""PyTorch: TorchScript (model.pt) and exported programs (model.pt2), in a worker process.

torch is imported by `load` and never by this module: the gateway and the checker read it too.
"""

import re
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from backends.artefact import artefact_path, input_names, name_file, refuse
from backends.errors import ExecutionFailed, FaultyModel
from backends.operator_library import operator_library
from backends.ragged import RaggedInstance, is_ragged
from backends.seam import Device, LoadedInstances, Tensors
from backends.stacked import StackedInstance
from repository.config.tensors import BY_NAME, Array
from repository.model import ModelConfig, ModelVersion
from repository.process.collector import no_collection

BF16 = BY_NAME["BF16"].dtype
STRING = BY_NAME["BYTES"].config
_BY_POSITION = re.compile(r".*__(\d+)")
"""Triton's names for inputs and outputs by index: INPUT__0, OUTPUT__1."""

Call = Callable[[Tensors], Any]
"""A loaded model: torch tensors by input name → whatever `forward` returns."""


class PyTorch:
    """The backend `pytorch`."""

    def complete(self, version: ModelVersion, default_max_batch: int) -> ModelConfig:
        """See `backends.seam.Backend`; reads the archive, imports no torch, unpickles nothing."""
        from backends.pytorch.complete import complete

        path = _model_file(version)
        config = complete(version, path, default_max_batch)
        name_file(config, path.name)
        return config

    def load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        """`count` instances sharing one model. Raises LoadFailed in torch's own words."""
        with no_collection():
            import torch  # noqa: F401 - not among what is collected after the load
        with no_collection(loads=True):
            return self._load(version, device, count)

    def _load(self, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
        import torch

        path = _model_file(version)
        _refuse_strings(version)
        torch.set_num_threads(max(device.threads, 1))
        # Inputs may be read-only views of what was received; a model that writes into its input
        # writes into a batch of its own, so torch's warning has nothing to say; nor has
        # its word on TorchScript, which the model's owner has chosen.
        warnings.filterwarnings("ignore", message="The given NumPy array is not writable")
        warnings.filterwarnings("ignore", message=r"`torch\.jit\.\w+` is deprecated")
        if device.kind == "cuda" and device.index >= torch.cuda.device_count():
            refuse(
                version,
                f"cuda:{device.index} was asked for, but torch {torch.__version__} sees "
                f"{torch.cuda.device_count()} CUDA devices; use instance_group KIND_CPU",
            )
        name = "cpu" if device.kind == "cpu" else f"cuda:{device.index}"
        _load_operators(version)
        try:
            call = (
                _load_program(version, path, name)
                if _is_program(path)
                else _load_script(version, path, name)
            )
        except (RuntimeError, ValueError, OSError, KeyError, AssertionError) as error:
            refuse(version, f"torch cannot load {path.name}: {_first_lines(error)}")
        cores = device.threads if device.kind == "cpu" else 0
        kind = RaggedTorchInstance if is_ragged(version.config) else TorchInstance
        instances = [kind(version, name, cores, call) for _ in range(count)]
        return LoadedInstances(instances, version.config)


def _model_file(version: ModelVersion) -> Path:
    return artefact_path(version, "model.pt2", "model.pt")


def _load_operators(version: ModelVersion) -> None:
    """Make the operators of the config's libraries known to torch, in this process."""
    import torch

    for name in version.config.model_operations.op_library_filename:
        path = operator_library(version, name)
        try:
            torch.ops.load_library(path)  # type: ignore[no-untyped-call]
        except (OSError, RuntimeError) as error:
            reason = _first_lines(error)
            refuse(version, f"torch cannot load the operators in {name}: {reason}")


def _refuse_strings(version: ModelVersion) -> None:
    for tensor in (*version.config.input, *version.config.output):
        if tensor.data_type == STRING:
            refuse(
                version,
                f"'{tensor.name}' is TYPE_STRING, and torch has no string tensors; "
                "use a python model to turn strings into numbers",
            )


def _is_program(path: Path) -> bool:
    from zipfile import ZipFile, is_zipfile

    if not is_zipfile(path):
        return False
    with ZipFile(path) as archive:
        return any(name.endswith("/models/model.json") for name in archive.namelist())


def _load_program(version: ModelVersion, path: Path, device: str) -> Call:
    """torch.export: tensors go to where the exported signature had them; see `_load_script`."""
    import torch
    from torch.export.passes import move_to_device_pass
    from torch.utils import _pytree

    program = torch.export.load(path)
    if device != "cpu":
        program = move_to_device_pass(program, device)
    arguments = [str(name) for name in program.graph_signature.user_inputs]
    names = input_names(version.config)
    meant = dict(zip(_targets(names, arguments), names, strict=True))
    order = [meant[argument] for argument in arguments]
    in_spec = program.call_spec.in_spec
    assert in_spec is not None
    module = program.module()

    def call(inputs: Tensors) -> Any:
        leaves = [inputs[name] for name in order]
        args, kwargs = _pytree.tree_unflatten(leaves, in_spec)
        return module(*args, **kwargs)

    return call


def _load_script(version: ModelVersion, path: Path, device: str) -> Call:
    """TorchScript: by argument name, by Triton's NAME__index, else in the config's order."""
    import torch

    module: Any = torch.jit.load(path, map_location=device).eval()  # type: ignore[no-untyped-call]
    arguments = [argument.name for argument in module.forward.schema.arguments][1:]
    names = input_names(version.config)
    targets = dict(zip(names, _targets(names, arguments), strict=True))

    def call(inputs: Tensors) -> Any:
        return module(**{targets[name]: tensor for name, tensor in inputs.items()})

    return call


def _targets(names: Sequence[str], arguments: Sequence[str]) -> list[str]:
    """The argument of `forward` each input means. Raises ValueError for one there is not."""
    if set(names) <= set(arguments):
        return list(names)
    positions = [_BY_POSITION.fullmatch(name) for name in names]
    indices = [int(found[1]) for found in positions if found]
    if len(indices) < len(names):
        indices = list(range(len(names)))
    if len(set(indices)) < len(names) or max(indices) >= len(arguments):
        raise ValueError(f"inputs {', '.join(names)} do not fit forward({', '.join(arguments)})")
    return [arguments[index] for index in indices]


def _first_lines(error: Exception) -> str:
    """Torch's reason without the C++ stack it may carry, and never without the exception's name."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines[:4])}"


class TorchInstance(StackedInstance):
    """One thread's way into the model."""

    def __init__(self, version: ModelVersion, device: str, cores: int, call: Call) -> None:
        import torch

        super().__init__(version, device, cores)
        self._torch = torch
        self._call = call
        self._order = {name: _position(name, at) for at, name in enumerate(self._all)}

    def run(self, inputs: Tensors, outputs: tuple[str, ...]) -> Mapping[str, Array]:
        """See StackedInstance. Raises torch's AcceleratorError where the device failed: its context
        is lost with it, so the process is to end, and another is started."""
        torch = self._torch
        tensors = {name: self._to_torch(array) for name, array in inputs.items()}
        try:
            with torch.inference_mode():
                returned = self._call(tensors)
        except torch.AcceleratorError:
            raise
        except (RuntimeError, ValueError, TypeError, AssertionError, IndexError, KeyError) as error:
            raise ExecutionFailed(f"{self._where}: torch: {_reason(error)}") from error
        picked = self._picked(returned, outputs)
        return {name: self._to_numpy(name, value) for name, value in picked.items()}

    def _to_torch(self, array: Array) -> Any:
        torch = self._torch
        array = np.ascontiguousarray(array) if not array.flags.c_contiguous else array
        if array.dtype == BF16:
            tensor = torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
        else:
            tensor = torch.from_numpy(array)
        return tensor if self.device == "cpu" else tensor.to(self.device)

    def _picked(self, returned: Any, outputs: tuple[str, ...]) -> dict[str, Any]:
        """What `forward` returned, under the config's names: keys of a dict, else by order."""
        if isinstance(returned, dict) and all(name in returned for name in outputs):
            return {name: returned[name] for name in outputs}
        if isinstance(returned, dict):
            values = list(returned.values())
        else:
            values = list(returned) if isinstance(returned, list | tuple) else [returned]
        if max(self._order[name] for name in outputs) >= len(values):
            raise FaultyModel(
                f"{self._where} is faulty: forward returned {len(values)} tensors, "
                f"but its config lists {', '.join(self._all)}"
            )
        return {name: values[self._order[name]] for name in outputs}

    def _to_numpy(self, name: str, value: Any) -> Array:
        torch = self._torch
        if not isinstance(value, torch.Tensor):
            raise FaultyModel(
                f"{self._where} is faulty: forward returned a {type(value).__name__} "
                f"for output '{name}'; it must be a tensor"
            )
        value = value.detach().cpu()
        array: Array
        if value.dtype == torch.bfloat16:
            array = value.contiguous().view(torch.int16).numpy().view(BF16)
        else:
            array = value.numpy()
        return array


class RaggedTorchInstance(TorchInstance, RaggedInstance):
    """One whose batches are ragged."""


def _position(name: str, at: int) -> int:
    found = _BY_POSITION.fullmatch(name)
    return int(found[1]) if found else at


def _reason(error: Exception) -> str:
    """The last line says what was wrong; TorchScript puts its traceback before it."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__

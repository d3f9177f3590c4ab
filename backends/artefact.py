"""What a model file says of itself, and how a config is completed from it and held against it.

A backend's `complete` reads its file into an `Artefact`; `complete_config` does the rest in the
same way for all of them. Source of the rules: Triton's auto-completion.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NamedTuple, NoReturn

from tritonclient.grpc import model_config_pb2 as pb

from backends.errors import LoadFailed
from backends.seam import Device
from repository.config.file_rules import names_hidden
from repository.config.type_names import NAMES
from repository.model import ModelConfig, ModelVersion


class TensorDescription(NamedTuple):
    """An input or output as the file records it.

    `data_type` is a config enum value. `shape` has the batch dimension in it and -1 for what is
    not fixed; None when the file does not record it. `required`: not an input that the file gives
    a default for. `problem`: why it cannot be served, if somebody wants it.
    """

    name: str
    data_type: int
    shape: tuple[int, ...] | None
    optional: bool = False
    required: bool = True
    problem: str = ""


class Artefact(NamedTuple):
    """A model file: its name, inputs and outputs in order, and what limits batching.

    `max_rows`: most rows it takes at once, 0 for any. `unbatchable`: why it cannot batch whatever
    its shapes say, or empty.
    """

    file: str
    inputs: tuple[TensorDescription, ...]
    outputs: tuple[TensorDescription, ...]
    max_rows: int = 0
    unbatchable: str = ""


def refuse(version: ModelVersion, message: str) -> NoReturn:
    """Raise LoadFailed, naming model and version."""
    raise LoadFailed(f"model '{version.name}' version {version.number}: {message}")


def require_cpu(version: ModelVersion, device: Device, library: str) -> None:
    """Raise LoadFailed for any other device."""
    if device.kind != "cpu":
        refuse(
            version,
            f"{device.kind}:{device.index} was asked for, but {library} runs on the CPU here; "
            "use instance_group KIND_CPU",
        )


def artefact_path(version: ModelVersion, *defaults: str) -> Path:
    """The model's file: `default_model_filename`, else the first of `defaults` that exists.

    Raises LoadFailed when there is none, or when it leaves the version's folder.
    """
    written = version.config.default_model_filename
    names = (written,) if written else defaults
    for name in names:
        path = inside(version, name, "default_model_filename")
        if path.exists():
            return path
    found = ", ".join(sorted(entry.name for entry in version.path.iterdir())) or "nothing"
    refuse(version, f"no {' or '.join(names)} in folder {version.path.name}/, which holds {found}")


def inside(version: ModelVersion, name: str, field: str) -> Path:
    """`name` below the version's folder; raises LoadFailed when it leads out or is hidden."""
    if names_hidden(name):
        refuse(version, f"{field} '{name}' is hidden; no file whose name begins with a dot is read")
    path = version.path / name
    if not path.resolve().is_relative_to(version.path.resolve()):
        refuse(version, f"{field} '{name}' leads out of the version's folder; it must stay inside")
    return path


def parameter(version: ModelVersion, name: str) -> str:
    """The text of a `parameters` entry of the config, "" where it has none."""
    parameters = version.config.parameters
    return str(parameters[name].string_value) if name in parameters else ""


def complete_config(
    version: ModelVersion, backend: str, artefact: Artefact, default_max_batch: int
) -> ModelConfig:
    """The version's config with everything in it that the artefact knows.

    Raises LoadFailed where the two contradict each other, naming field, value and what the
    artefact has.
    """
    config = ModelConfig()
    config.CopyFrom(version.config)
    config.backend = backend
    config.ClearField("platform")
    _check_names(version, artefact)
    _choose_batching(version, config, artefact, default_max_batch)
    for described in _used_inputs(version.config, artefact):
        _merge(version, config, described, artefact.file, "input")
    for described in _used_outputs(version.config, artefact):
        _merge(version, config, described, artefact.file, "output")
    _complete_batch_inputs(version, config, artefact)
    return config


def input_names(config: ModelConfig) -> list[str]:
    """What a completed config gives the model, in order: what clients send, then `batch_input`."""
    fed = [name for row in config.batch_input for name in row.target_name]
    return [*(tensor.name for tensor in config.input), *fed]


def name_file(config: ModelConfig, file: str) -> None:
    """Say in a completed config which file is served, as Triton does where the config does not."""
    if not (config.default_model_filename or config.cc_model_filenames):
        config.default_model_filename = file


def _check_names(version: ModelVersion, artefact: Artefact) -> None:
    kinds = (
        ("input", version.config.input, artefact.inputs),
        ("output", version.config.output, artefact.outputs),
    )
    for kind, written, described in kinds:
        names = {tensor.name for tensor in described}
        for tensor in written:
            if tensor.name not in names:
                has = ", ".join(map(_text, described)) or "none"
                refuse(
                    version,
                    f"{kind} '{tensor.name}' is not in {artefact.file}; its {kind}s are: {has}",
                )


def _choose_batching(
    version: ModelVersion, config: ModelConfig, artefact: Artefact, default: int
) -> None:
    written, cap = config.max_batch_size, artefact.max_rows
    stuck = artefact.unbatchable or _stuck(version.config, artefact)
    if flat := _flat_names(config):  # their first dimension counts elements, and bounds no rows
        cap, stuck = 0, _stuck(version.config, artefact, flat)
    if written > 0:
        if stuck:
            refuse(
                version,
                f"max_batch_size is {written}, but {stuck}; export it with a variable first "
                "dimension, or set max_batch_size: 0 and write full shapes in dims",
            )
        if 0 < cap < written:
            refuse(
                version,
                f"max_batch_size is {written}, but {artefact.file} takes at most {cap} rows",
            )
    elif not stuck and not _written_in_full(version.config, artefact):
        config.max_batch_size = min(default, cap or default)
        if config.WhichOneof("scheduling_choice") is None and config.max_batch_size > 1:
            config.dynamic_batching.SetInParent()


def _stuck(config: ModelConfig, artefact: Artefact, flat: frozenset[str] = frozenset()) -> str:
    """Why the model cannot batch: a tensor, but for `flat` ones, whose first dimension is missing
    or fixed."""
    for tensor in (*_used_inputs(config, artefact), *_used_outputs(config, artefact)):
        if tensor.name not in flat and tensor.shape is not None and tensor.shape[:1] != (-1,):
            return f"{artefact.file} has no variable first dimension in '{tensor.name}' " + (
                f"(shape {brackets(tensor.shape)})"
            )
    return ""


def _written_in_full(config: ModelConfig, artefact: Artefact) -> bool:
    """Whether the config, which leaves max_batch_size at 0, writes dims with the batch in them."""
    shapes = {tensor.name: tensor.shape for tensor in (*artefact.inputs, *artefact.outputs)}
    flat = _flat_names(config)
    for tensor in (*config.input, *config.output):
        if tensor.name in flat:
            continue
        shape = shapes.get(tensor.name)
        rank = len(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)
        if tensor.dims and (shape is None or rank == len(shape)):
            return True
    return False


def _used_inputs(config: ModelConfig, artefact: Artefact) -> list[TensorDescription]:
    written = {tensor.name for tensor in config.input}
    fed = _fed_by_the_scheduler(config)
    return [
        tensor
        for tensor in artefact.inputs
        if tensor.name in written or (tensor.required and tensor.name not in fed)
    ]


def _fed_by_the_scheduler(config: ModelConfig) -> set[str]:
    """Inputs no client sends: sequence controls, states, and Triton's `batch_input`."""
    sequence = config.sequence_batching
    names = {control.name for control in sequence.control_input}
    names.update(state.input_name for state in sequence.state)
    names.update(name for batch_input in config.batch_input for name in batch_input.target_name)
    return names


def _used_outputs(config: ModelConfig, artefact: Artefact) -> list[TensorDescription]:
    """What the config lists; all of them when it lists none, or sequence states only."""
    written = {tensor.name for tensor in config.output}
    if written - {state.output_name for state in config.sequence_batching.state}:
        return [tensor for tensor in artefact.outputs if tensor.name in written]
    return list(artefact.outputs)


def _merge(
    version: ModelVersion, config: ModelConfig, described: TensorDescription, file: str, kind: str
) -> None:
    if described.problem:
        refuse(version, f"{kind} '{described.name}' of {file} {described.problem}")
    tensors: Iterable[pb.ModelInput | pb.ModelOutput]
    tensors = config.input if kind == "input" else config.output
    tensor = next((tensor for tensor in tensors if tensor.name == described.name), None)
    if tensor is None:
        group = config.input if kind == "input" else config.output
        tensor = group.add(name=described.name)
        if isinstance(tensor, pb.ModelInput):
            tensor.optional = described.optional
    where = f"{kind} '{tensor.name}'"
    if tensor.data_type == pb.TYPE_INVALID:
        tensor.data_type = described.data_type
    elif tensor.data_type != described.data_type:
        refuse(
            version,
            f"{where} data_type is {pb.DataType.Name(tensor.data_type)}, "
            f"but {file} has {NAMES[described.data_type]}",
        )
    if isinstance(tensor, pb.ModelInput) and tensor.allow_ragged_batch:
        _merge_ragged(version, tensor, described.shape)
    elif tensor.name not in _flat_names(config):
        batched = config.max_batch_size > 0
        _merge_dims(version, tensor, described.shape, f"{where} of {file}", batched)


def _merge_dims(
    version: ModelVersion,
    tensor: pb.ModelInput | pb.ModelOutput,
    shape: tuple[int, ...] | None,
    where: str,
    batched: bool,
) -> None:
    if shape is None:
        if not tensor.dims:
            refuse(version, f"{where} records no shape; write its dims in config.pbtxt")
        return
    inner = shape[1:] if batched else shape
    if not tensor.dims:
        tensor.dims.extend(inner or (1,))
        if batched and not inner:
            tensor.reshape.SetInParent()
        return
    model_dims = tuple(tensor.reshape.shape if tensor.HasField("reshape") else tensor.dims)
    is_scalar = not batched and not inner and set(model_dims) <= {1, -1}  # keeps the config's shape
    if not _fits(model_dims, inner) and not is_scalar:
        note = " behind the batch dimension, which dims leave out" if batched else ""
        field = "reshape" if tensor.HasField("reshape") else "dims"
        refuse(
            version,
            f"{where} has shape {brackets(inner)}{note}, but {field} is {brackets(model_dims)}",
        )


def _flat_names(config: ModelConfig) -> frozenset[str]:
    """Inputs that reach the model, and outputs that leave it, without their dims."""
    ragged = [tensor.name for tensor in config.input if tensor.allow_ragged_batch]
    scattered = [name for row in config.batch_output for name in row.target_name]
    return frozenset((*ragged, *scattered))


def _merge_ragged(
    version: ModelVersion, tensor: pb.ModelInput, shape: tuple[int, ...] | None
) -> None:
    """Source of the text: Triton's ONNX Runtime backend."""
    if shape not in (None, (-1,)):
        refuse(
            version,
            f"unable to load model '{version.name}', configuration expects model provides input "
            f"with shape [-1]  for ragged input '{tensor.name}', model provides {brackets(shape)}; "
            "the requests of a batch are flattened and strung together in it: export the model so, "
            "or leave allow_ragged_batch out",
        )
    if not tensor.dims:
        tensor.dims.append(-1)


_OF_TWO_DIMS = pb.BatchInput.BATCH_ITEM_SHAPE


def _complete_batch_inputs(version: ModelVersion, config: ModelConfig, artefact: Artefact) -> None:
    """Fill in the data type of each `batch_input`, and hold its targets against the model's."""
    described = {tensor.name: tensor for tensor in artefact.inputs}
    for row in config.batch_input:
        rank = 2 if row.kind == _OF_TWO_DIMS else 1
        for name in row.target_name:
            tensor = described.get(name)
            if tensor is None:
                has = ", ".join(map(_text, artefact.inputs)) or "none"
                refuse(
                    version,
                    f"batch_input target '{name}' is not in {artefact.file}; its inputs are: {has}",
                )
            row.data_type = row.data_type or tensor.data_type
            if row.data_type != tensor.data_type:
                refuse(
                    version,
                    f"batch_input target '{name}' data_type is {pb.DataType.Name(row.data_type)}, "
                    f"but {artefact.file} has {NAMES.get(tensor.data_type, 'another type')}",
                )
            if tensor.shape is not None and len(tensor.shape) != rank:
                refuse(
                    version,
                    f"batch_input target '{name}' of kind {pb.BatchInput.Kind.Name(row.kind)} has "
                    f"{rank} dimension{'s' * (rank > 1)}, but {artefact.file} has shape "
                    f"{brackets(tensor.shape)}",
                )


def _fits(written: Sequence[int], shape: Sequence[int]) -> bool:
    return len(written) == len(shape) and all(
        have in (-1, want) for want, have in zip(written, shape, strict=True)
    )


def brackets(dims: Sequence[int]) -> str:
    """A shape as clients and configs read it: [1,8,8]."""
    return "[" + ",".join(map(str, dims)) + "]"


def _text(tensor: TensorDescription) -> str:
    data_type = NAMES.get(tensor.data_type, "unsupported type")
    shape = "" if tensor.shape is None else " " + brackets(tensor.shape)
    return f"{tensor.name} ({data_type}{shape})"

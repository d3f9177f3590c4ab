"""A sequence model's config as its runtime needs it: with the inputs and outputs that no client
sends or sees. Pure.

Clients see the config as written; the runtime gets control inputs and states as plain tensors.
"""

from collections.abc import Iterator
from typing import Any

from tritonclient.grpc import model_config_pb2 as pb

from repository.model import ModelConfig


def has_fed_tensors(config: ModelConfig) -> bool:
    """Whether the scheduler feeds the model anything beside what clients send."""
    sequences = config.sequence_batching
    return bool(sequences.control_input or sequences.state)


def expanded(config: ModelConfig) -> ModelConfig:
    """The config with states and controls among its inputs, and states among its outputs.

    States stand before controls, so that the k-th output of an identity model that has as many
    outputs as inputs is still its k-th input. A python model is given whatever there is, and reads
    `input` of its own config as Triton shows it, so there only outputs are added.
    """
    if not has_fed_tensors(config):
        return config
    made = ModelConfig()
    made.CopyFrom(config)
    if config.backend != "python":
        for state in config.sequence_batching.state:
            made.input.add(name=state.input_name, data_type=state.data_type, dims=state.dims)
        for name, data_type in controls_of(config):
            made.input.add(name=name, data_type=data_type, dims=[1])
    listed = {tensor.name for tensor in config.output}
    for state in config.sequence_batching.state:
        if state.output_name not in listed:
            made.output.add(name=state.output_name, data_type=state.data_type, dims=state.dims)
    return made


def contracted(completed: ModelConfig, written: ModelConfig) -> ModelConfig:
    """What a runtime made of `expanded(written)`, as clients see it again."""
    if not has_fed_tensors(written):
        return completed
    made = ModelConfig()
    made.CopyFrom(completed)
    fed = {state.input_name for state in written.sequence_batching.state}
    fed.update(name for name, _ in controls_of(written))
    _remove(made.input, fed)
    hidden = {state.output_name for state in written.sequence_batching.state}
    _remove(made.output, hidden - {tensor.name for tensor in written.output})
    return made


def controls_of(config: ModelConfig) -> Iterator[tuple[str, int]]:
    """Name and config data type of each control input."""
    for control_input in config.sequence_batching.control_input:
        for control in control_input.control:
            yield control_input.name, control_type(control)


def control_type(control: pb.ModelSequenceBatching.Control) -> int:
    """The data type of a control: by its pair of values, or as named for the correlation id."""
    if control.kind == pb.ModelSequenceBatching.Control.CONTROL_SEQUENCE_CORRID:
        return int(control.data_type)
    if control.fp32_false_true:
        return int(pb.TYPE_FP32)
    return int(pb.TYPE_BOOL if control.bool_false_true else pb.TYPE_INT32)


def _remove(tensors: Any, names: set[str]) -> None:
    for index in reversed(range(len(tensors))):
        if tensors[index].name in names:
            del tensors[index]

"""Completing and loading a sequence model: its backend works with the expanded config."""

from dataclasses import replace

from backends.seam import Backend, Device, LoadedInstances
from backends.sequences.expansion import contracted, expanded, has_fed_tensors
from backends.sequences.instance import SequenceInstance
from backends.sequences.states import state_tensors
from repository.model import ModelConfig, ModelVersion


def complete(backend: Backend, version: ModelVersion, default_max_batch: int) -> ModelConfig:
    """As `Backend.complete`; controls and states are held against the model's file like any other
    tensor."""
    config = expanded(version.config)
    completed = backend.complete(replace(version, config=config), default_max_batch)
    return contracted(completed, version.config)


def load(backend: Backend, version: ModelVersion, device: Device, count: int) -> LoadedInstances:
    """As `Backend.load`; the instances of a sequence model add its controls and keep its states."""
    written = version.config
    if not written.HasField("sequence_batching"):
        return backend.load(version, device, count)
    states = state_tensors(version)
    config = expanded(written) if has_fed_tensors(written) else written
    loaded = backend.load(replace(version, config=config), device, count)
    served = replace(version, config=contracted(loaded.config, written))
    return LoadedInstances(
        [SequenceInstance(instance, served, states) for instance in loaded.instances],
        served.config,
    )

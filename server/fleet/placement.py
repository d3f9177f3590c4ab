"""Where a model's instances go: how many, on which device, with how many threads. Pure.

The rules are written down for operators in `docs/instances.md`.
"""

import os
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from tritonclient.grpc import model_config_pb2 as pb

from backends.errors import LoadFailed
from backends.registry import Runtime
from backends.seam import Device
from repository.model import ModelConfig

CUDA_BACKENDS = frozenset({"onnxruntime", "pytorch"})
"""Backends that go to a GPU by themselves, where there is one."""

_NO_GPU = ("", "-1", "NoDevFiles")
_Group = pb.ModelInstanceGroup


class Placement(NamedTuple):
    """How many instances on one device."""

    device: Device
    instances: int


def place(
    config: ModelConfig, runtime: Runtime, cores: int, gpus: tuple[int, ...]
) -> tuple[Placement, ...]:
    """Where the instances of a completed config go, on a machine with these cores and GPUs.

    Raises LoadFailed when the config asks for a GPU this machine does not have.
    """
    groups = [group for group in config.instance_group if not group.passive]
    if not groups:
        return _unasked(config, runtime, cores, gpus)
    on_cpu = sum(max(1, group.count) for group in groups if not _devices(config, group, gpus))
    threads = max(1, cores // max(1, on_cpu))
    placed: list[Placement] = []
    for group in groups:
        count = max(1, group.count)
        devices = _devices(config, group, gpus)
        placed += [Placement(Device("cuda", gpu, 1), count) for gpu in devices]
        if not devices:
            placed.append(Placement(Device("cpu", 0, threads), count))
    return tuple(placed)


def asks_for_gpu(config: ModelConfig) -> bool:
    """Whether a GPU is a condition of the config, and not only welcome."""
    return any(
        group.kind == _Group.KIND_GPU or group.gpus
        for group in config.instance_group
        if not group.passive
    )


def _unasked(
    config: ModelConfig, runtime: Runtime, cores: int, gpus: tuple[int, ...]
) -> tuple[Placement, ...]:
    if gpus and config.backend in CUDA_BACKENDS:
        return tuple(Placement(Device("cuda", gpu, 1), 1) for gpu in gpus)
    if runtime.per_core:
        return (Placement(Device("cpu", 0, 1), cores),)
    return (Placement(Device("cpu", 0, cores), 1),)


def _devices(
    config: ModelConfig, group: pb.ModelInstanceGroup, gpus: tuple[int, ...]
) -> tuple[int, ...]:
    """The GPUs a group goes to; none means the CPU."""
    if group.kind in (_Group.KIND_CPU, _Group.KIND_MODEL):
        return ()
    if group.kind == _Group.KIND_GPU or group.gpus:
        return _asked_gpus(config, group, gpus)
    return gpus if config.backend in CUDA_BACKENDS else ()


def _asked_gpus(
    config: ModelConfig, group: pb.ModelInstanceGroup, gpus: tuple[int, ...]
) -> tuple[int, ...]:
    if not gpus:
        raise LoadFailed(
            f"model '{config.name}': instance_group asks for KIND_GPU, but this machine has no "
            "NVIDIA GPU; use KIND_CPU, or KIND_AUTO for whatever there is"
        )
    missing = [gpu for gpu in group.gpus if gpu not in gpus]
    if missing:
        raise LoadFailed(
            f"model '{config.name}': instance_group asks for gpus {missing}, "
            f"this machine has {list(gpus)}"
        )
    return tuple(group.gpus) or gpus


def visible_gpus(devices: Path = Path("/dev")) -> tuple[int, ...]:
    """Indexes of the NVIDIA GPUs this process may use, as CUDA counts them."""
    present = [path for path in devices.glob("nvidia[0-9]*") if path.name[6:].isdigit()]
    allowed = os.environ.get("CUDA_VISIBLE_DEVICES")
    if allowed is None:
        return tuple(range(len(present)))
    listed = [
        entry for entry in allowed.split(",") if entry.strip() not in ("", "-1", "NoDevFiles")
    ]
    return tuple(range(min(len(listed), len(present))))


def describe(devices: Sequence[Device]) -> str:
    """For the start-up table: "2 × cpu", "1 × cpu (4 threads)", "1 × cuda:0"."""
    return ", ".join(f"{count} × {_name(device)}" for device, count in Counter(devices).items())


def _name(device: Device) -> str:
    if device.kind != "cpu":
        return f"{device.kind}:{device.index}"
    return f"cpu ({device.threads} threads)" if device.threads > 1 else "cpu"

"""Where a model's instances go: how many, on which device, with how many threads.

The rules are written down for operators in `docs/instances.md`.
"""

import itertools
import os
from collections import Counter
from collections.abc import Sequence, Set
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
    """The instances on one device, by name."""

    device: Device
    names: tuple[str, ...]


def resolve(
    config: ModelConfig, runtime: Runtime, cores: int, gpus: tuple[int, ...]
) -> ModelConfig:
    """A copy of a completed config whose instance groups say all: name, kind, count and gpus, on a
    machine with these cores and GPUs. Names as Triton gives them (its NormalizeInstanceGroup).

    Raises LoadFailed when the config asks for a GPU this machine does not have.
    """
    resolved = ModelConfig()
    resolved.CopyFrom(config)
    if not any(not group.passive for group in config.instance_group):
        resolved.instance_group.append(_default_group(config, runtime, cores, gpus))
    for index, group in enumerate(resolved.instance_group):
        group.name = group.name or f"{config.name}_{index}"
        group.count = max(1, group.count)
        if group.passive:
            continue
        group.gpus[:] = _devices(config, group, gpus)
        if group.kind != _Group.KIND_MODEL:
            group.kind = _Group.KIND_GPU if group.gpus else _Group.KIND_CPU
    return resolved


def place(resolved: ModelConfig, cores: int) -> tuple[Placement, ...]:
    """Where the instances of a config with resolved groups go. Instances on the CPU share the
    cores.

    An instance is named after its group and counted, as in Triton; but no name is given twice,
    where groups have the same name, or one has several GPUs.
    """
    groups = [group for group in resolved.instance_group if not group.passive]
    threads = max(1, cores // max(1, sum(group.count for group in groups if not group.gpus)))
    taken: set[str] = set()
    placed: list[Placement] = []
    for group in groups:
        devices = [Device("cuda", gpu, 1) for gpu in group.gpus] or [Device("cpu", 0, threads)]
        for device in devices:
            names = _free_names(group, taken)
            taken.update(names)
            placed.append(Placement(device, names))
    return tuple(placed)


def _free_names(group: pb.ModelInstanceGroup, taken: Set[str]) -> tuple[str, ...]:
    numbered = (f"{group.name}_{number}" for number in itertools.count())
    return tuple(itertools.islice((name for name in numbered if name not in taken), group.count))


def with_groups(config: ModelConfig, source: ModelConfig) -> ModelConfig:
    """A copy of `config` with the instance groups of `source`."""
    made = ModelConfig()
    made.CopyFrom(config)
    del made.instance_group[:]
    made.instance_group.extend(source.instance_group)
    return made


def asks_for_gpu(config: ModelConfig) -> bool:
    """Whether a GPU is a condition of the config, and not only welcome."""
    return any(
        group.kind == _Group.KIND_GPU or group.gpus
        for group in config.instance_group
        if not group.passive
    )


def may_use_gpu(resolved: ModelConfig, gpus: tuple[int, ...]) -> bool:
    """Whether processes of a config with resolved groups may use one of the machine's GPUs. The
    code of a python model goes to one by itself, also where its instances are on the CPU."""
    if not gpus:
        return False
    groups = [group for group in resolved.instance_group if not group.passive]
    return resolved.backend == "python" or any(group.kind != _Group.KIND_CPU for group in groups)


def _default_group(
    config: ModelConfig, runtime: Runtime, cores: int, gpus: tuple[int, ...]
) -> pb.ModelInstanceGroup:
    """The group of a config without any; Triton names it after the model."""
    if gpus and config.backend in CUDA_BACKENDS:
        return _Group(name=config.name, kind=_Group.KIND_GPU, count=1, gpus=gpus)
    count = cores if runtime.per_core else 1
    return _Group(name=config.name, kind=_Group.KIND_CPU, count=count)


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


def difference(
    placements: Sequence[Placement],
    present: Sequence[Device],
    names: Sequence[str],
    ready: Sequence[bool] = (),
) -> tuple[list[int], list[Placement]]:
    """Indexes of `present` that stay, and what is missing from `placements` beside them.

    Those that are `ready` stay before those that are being restarted; all are where it is empty.
    They keep their `names`; what is missing gets wanted names that none of them has.

    An instance that is where one is wanted stays with the threads it has: their number depends on
    how many share the cores, and to change it is to load the model anew.
    """
    keep: list[int] = []
    lacking: list[tuple[Placement, int]] = []
    for placement in placements:
        place = (placement.device.kind, placement.device.index)
        there = [i for i, one in enumerate(present) if (one.kind, one.index) == place]
        there.sort(key=lambda i: bool(ready) and not ready[i])
        here = [i for i in there if i not in keep][: len(placement.names)]
        keep += here
        if len(here) < len(placement.names):
            lacking.append((placement, len(placement.names) - len(here)))
    kept = {names[index] for index in keep}
    return keep, _with_names(lacking, [n for one in placements for n in one.names if n not in kept])


def _with_names(lacking: Sequence[tuple[Placement, int]], free: list[str]) -> list[Placement]:
    """So many instances of each placement, with names that are free, its own first."""
    missing: list[Placement] = []
    for (device, own), count in lacking:
        free = [name for name in free if name in own] + [name for name in free if name not in own]
        missing.append(Placement(device, tuple(free[:count])))
        free = free[count:]
    return missing

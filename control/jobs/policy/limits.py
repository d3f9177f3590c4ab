"""What a job may take, by its type, and what may be asked for instead. Pure."""

from typing import Annotated

import msgspec
from msgspec import Meta

MIB, GIB, HOUR_S = 2**20, 2**30, 3600

Bytes = Annotated[int, Meta(ge=64 * MIB, le=2**50)]
Seconds = Annotated[int, Meta(ge=1, le=7 * 24 * HOUR_S)]


class JobLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The most that one attempt may take; one that takes more is ended and has failed.

    wall_s, cpu_s: seconds that pass, and seconds of processor time of all its processes.
    memory_bytes: resident memory of all its processes. disk_bytes: its scratch folder.
    output_bytes: the files of its result. threads: what its libraries may start.
    """

    wall_s: Seconds = 2 * HOUR_S
    cpu_s: Seconds = 4 * HOUR_S
    memory_bytes: Bytes = 4 * GIB
    disk_bytes: Bytes = 20 * GIB
    output_bytes: Bytes = 10 * GIB
    threads: Annotated[int, Meta(ge=1, le=1024)] = 1


_TRAINING = JobLimits(wall_s=12 * HOUR_S, cpu_s=24 * HOUR_S)

_OF_TYPE = {"prune": _TRAINING, "distil": _TRAINING, "quantise_llm": _TRAINING}


def usual_limits(kind: str) -> JobLimits:
    """Of a job of the type `kind` for which nobody says otherwise."""
    return _OF_TYPE.get(kind, JobLimits())


class JobCost(msgspec.Struct, frozen=True):
    """What a job's last attempt took. `memory_bytes`: the most that was resident at once."""

    wall_s: float = 0.0
    cpu_s: float = 0.0
    memory_bytes: int = 0

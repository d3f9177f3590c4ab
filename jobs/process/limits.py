"""The bounds of one job's process. Pure."""

import msgspec


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """What a job may take; each is enforced on the process together with all it starts.

    memory_bytes: private memory. cpu_secs: processor time. wall_secs: time since its start.
    disk_bytes: of its scratch folder. output_bytes: of its output folder. printed_bytes: on stdout
        and stderr.
    entries, depth: of files and folders in each of these folders, and of folders within folders.
    processes: that live at the same time. all_threads: of them together. threads: that its
        libraries are told to compute with.
    niceness: 0 to 19; at 19 a process gets a seventieth of what a normal one gets beside it.
    grace_secs: between SIGTERM and SIGKILL.
    """

    memory_bytes: int = 8 << 30
    cpu_secs: float = 4 * 3600.0
    wall_secs: float = 2 * 3600.0
    disk_bytes: int = 20 << 30
    output_bytes: int = 10 << 30
    printed_bytes: int = 64 << 20
    entries: int = 100_000
    depth: int = 64
    processes: int = 64
    all_threads: int = 1024
    threads: int = 1
    niceness: int = 19
    grace_secs: float = 10.0


def size_text(size: int) -> str:
    """For people: "512 MiB", "1.5 GiB"."""
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit:
            return f"{size / unit:.4g} {name}"
    return f"{size} bytes"


def secs_text(secs: float) -> str:
    """For people: "90 s", "2 h"."""
    for unit, name in ((3600, "h"), (60, "min")):
        if secs >= unit and secs % unit == 0:
            return f"{secs / unit:g} {name}"
    return f"{secs:g} s"

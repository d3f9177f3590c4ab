"""What the machine and this process use now, read from Linux's /proc; None where there is none."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

from server.metrics.metric_family import MetricFamily, head

_PROC = Path("/proc")


class MachineUsage:
    """Figures as of the last `look`; CPU utilization is that between the last two looks."""

    def __init__(self, proc: Path = _PROC) -> None:
        self._proc = proc
        self._idle = self._total = 0
        self._utilization: float | None = None
        self._memory: dict[str, int] = {}
        self._resident: int | None = None

    def look(self) -> None:
        """Read everything afresh; some 0.1 ms."""
        self._look_at_cpu()
        self._memory = {
            name: int(rest.split()[0]) * 1024
            for name, _, rest in (
                line.partition(":") for line in self._read("meminfo").splitlines()
            )
            if name in ("MemTotal", "MemAvailable")
        }
        pages = self._read("self/statm").split()
        self._resident = int(pages[1]) * os.sysconf("SC_PAGE_SIZE") if len(pages) > 1 else None

    def cpu_utilization(self) -> float | None:
        return self._utilization

    def memory_total_bytes(self) -> int | None:
        return self._memory.get("MemTotal")

    def memory_used_bytes(self) -> int | None:
        total, available = self._memory.get("MemTotal"), self._memory.get("MemAvailable")
        return None if total is None or available is None else total - available

    def resident_bytes(self) -> int | None:
        return self._resident

    def _look_at_cpu(self) -> None:
        first = self._read("stat").partition("\n")[0].split()
        if len(first) < 6:
            return
        ticks = [int(field) for field in first[1:9]]
        idle, total = ticks[3] + ticks[4], sum(ticks)
        passed = total - self._total
        if passed > 0:
            busy = 1.0 - (idle - self._idle) / passed
            self._utilization = min(1.0, max(0.0, busy))
        self._idle, self._total = idle, total

    def _read(self, name: str) -> str:
        try:
            return (self._proc / name).read_text()
        except OSError:
            return ""


_MACHINE: tuple[tuple[MetricFamily, Callable[[MachineUsage], float | None]], ...] = (
    (
        MetricFamily("nv_cpu_utilization", "gauge", "CPU utilization of the machine, 0.0 to 1.0"),
        MachineUsage.cpu_utilization,
    ),
    (
        MetricFamily("nv_cpu_memory_total_bytes", "gauge", "RAM of the machine, in bytes"),
        MachineUsage.memory_total_bytes,
    ),
    (
        MetricFamily("nv_cpu_memory_used_bytes", "gauge", "RAM in use on the machine, in bytes"),
        MachineUsage.memory_used_bytes,
    ),
    (
        MetricFamily(
            "process_resident_memory_bytes", "gauge", "RAM this process occupies, in bytes"
        ),
        MachineUsage.resident_bytes,
    ),
)
OF_MACHINE: tuple[MetricFamily, ...] = tuple(metric for metric, _ in _MACHINE)


def of_machine(machine: MachineUsage, with_cpu: bool) -> Iterator[str]:
    """The lines of these metrics, of the CPU only if they are to be shown."""
    machine.look()
    for metric, figure in _MACHINE:
        value = figure(machine)
        if value is not None and (with_cpu or not metric.name.startswith("nv_cpu_")):
            yield from (*head(metric), f"{metric.name} {value}")

"""A version ready to serve, with all that has to be closed and returned when it leaves."""

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Protocol

from backends.seam import Device, Instance
from schedulers.seam import Scheduler
from server.fleet.memory.grants import MemoryAllocator, MemoryHolding
from server.served_version import ServedVersion


class FleetScheduler(Scheduler, Protocol):
    """A scheduler whose instances may change in place."""

    async def resize(self, instances: Sequence[Instance], until_ns: int) -> None:
        """Run on exactly these from now on; return when the others are closed: when they are done,
        or `time.monotonic_ns` passes `until_ns`."""


@dataclass(slots=True, eq=False)
class BuiltVersion:
    """A version ready to serve, its scheduler, device and name of each of its instances, and the
    memory it `held` of what the server's `memory` has. `closed`: or is being closed."""

    served: ServedVersion
    scheduler: FleetScheduler
    devices: tuple[Device, ...]
    names: tuple[str, ...]
    held: MemoryHolding
    memory: MemoryAllocator
    closed: bool = False

    @property
    def state(self) -> str:
        """Where it stands between being loaded and not, in words; "" for one that simply is."""
        return str(getattr(self.scheduler, "state", ""))

    async def close(self) -> None:
        """Close the scheduler and what it runs on, and return the memory."""
        self.closed = True
        with self.memory.meter.disturbed() if self.held.inside else nullcontext():
            try:
                await self.scheduler.close()
            finally:
                await self.memory.closed(self.held)

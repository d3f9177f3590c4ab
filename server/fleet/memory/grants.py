"""Asks the ledger before a load, returns what was granted after it, takes back what is only cached.

The pump around `server.fleet.memory.ledger`; used by `server.fleet.loading`, on the loop's thread.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from backends.errors import LoadFailed
from backends.footprint import MemoryRequirement, handed_down, is_inside, need_of
from backends.seam import Device
from repository.model import ModelVersion
from server.fleet.memory.ledger import (
    DeviceAccount,
    Eviction,
    MemoryGrant,
    MemoryLedger,
    OverBudget,
)
from server.fleet.memory.measurements import MemoryMeasurements
from server.fleet.memory.meter import LoadMeter
from server.fleet.placement import Placement
from server.process.allocator import return_free_memory
from server.served_version import MemoryRow

SHRINK_S = 5.0
"""Longest wait for a model that is to give back what it has cached."""

LEAST_ASKED = 4 << 20
"""Bytes; memory goes back by whole pages of many small tensors, so that less may be nothing."""

Resize = Callable[[int], Awaitable[int]]
"""Give back, or take, about so many bytes; how many they were."""

MakeRoom = Callable[[str, int, str], Awaitable[Eviction]]
"""Evict idle versions from a device, so many bytes, for whom; who stays and why where it cannot."""

NOBODY = Eviction((), (), False)

_log = logging.getLogger(__name__)


async def evict_nobody(device: str, lacking: int, whom: str) -> Eviction:
    return NOBODY


class MemoryShortage(LoadFailed):
    """A load for which there is no memory. `may_pass`: those who hold it are only busy now."""

    may_pass = False


class MemoryRequest(NamedTuple):
    """What `instances` instances on one device need together."""

    device: str
    instances: int
    need: MemoryRequirement


@dataclass(slots=True, eq=False)
class InstanceGrant:
    """A grant and the instances it is for. `loading`: of its bytes, those that only the load
    takes."""

    grant: MemoryGrant
    instances: int
    loading: int = 0


@dataclass(slots=True, eq=False)
class MemoryHolding:
    """What one loaded version holds. `inside`: in this process, whose allocator keeps what is
    freed. `shrink`, `grow`: how it gives back what it merely caches and takes it again, where it
    can."""

    shares: list[InstanceGrant] = field(default_factory=list)
    inside: bool = False
    shrink: Resize | None = None
    grow: Resize | None = None

    def on(self, device: str) -> int:
        """Bytes of a device; of all devices where it is ""."""
        shares = (one.grant for one in self.shares)
        return sum(grant.bytes for grant in shares if device in ("", grant.device))


class MemoryAllocator:
    """The ledger of one server, and who is behind its grants."""

    def __init__(
        self,
        budgets: Mapping[str, int],
        measurements: MemoryMeasurements | None = None,
        make_room: MakeRoom = evict_nobody,
    ) -> None:
        self.measurements = measurements or MemoryMeasurements(None)
        self.meter = LoadMeter()
        self._make_room_by_eviction = make_room
        self._ledger = MemoryLedger(budgets)
        self._held: set[MemoryHolding] = set()
        self._turns = asyncio.Lock()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._growing: asyncio.Task[None] | None = None

    def accounts(self) -> Sequence[DeviceAccount]:
        return self._ledger.accounts()

    def has_granted(self, holder: str) -> bool:
        """Whether it has any memory now, for a load under way too."""
        accounts = self._ledger.accounts()
        return any(grant.holder == holder for one in accounts for grant in one.grants)

    def rows(self) -> Sequence[MemoryRow]:
        """Each device's budget, then its grants by holder."""
        rows = []
        for device, budget, grants in self._ledger.accounts():
            rows += [] if budget is None else [MemoryRow(device, "", budget)]
            held: Counter[str] = Counter()
            for grant in grants:
                held[grant.holder] += grant.bytes
            rows += [MemoryRow(device, holder, bytes) for holder, bytes in sorted(held.items())]
        return rows

    async def take(self, version: ModelVersion, placements: Sequence[Placement]) -> MemoryHolding:
        """Have memory granted for instances of a completed version. Raises LoadFailed."""
        wants = []
        for device, names in placements:
            name, count = device_name(device), len(names)
            need = await asyncio.to_thread(self._need_of, version, count, name)
            wants.append(MemoryRequest(name, count, need))
        try:
            return await self.grant(f"{version.name} version {version.number}", wants)
        except OverBudget as error:
            refused = MemoryShortage(f"model '{version.name}' is not loaded: {error}")
            refused.may_pass = error.may_pass
            raise refused from None

    def _need_of(self, version: ModelVersion, instances: int, device: str) -> MemoryRequirement:
        """As measured before; else as estimated. A language model has its plan.

        What is measured inside this process is not exact: by that alone no version is beyond the
        whole budget."""
        with suppress(KeyError):
            measured = self.measurements.need_of(version, instances, device)
            if self._ledger.could_hold(device, measured) or not is_inside(version):
                return measured
        return need_of(version, instances, device)

    async def grant(self, holder: str, wants: Sequence[MemoryRequest]) -> MemoryHolding:
        """All that is wanted, or nothing. Where it lacks, models that cache give back first.

        Raises OverBudget, naming who holds what.
        """
        self._loop = asyncio.get_running_loop()
        held = MemoryHolding()
        async with self._turns:
            try:
                for device, instances, need in wants:
                    held.shares.append(await self._share(device, holder, instances, need))
            except BaseException:
                self.release(held)
                raise
        self._held.add(held)
        return held

    async def _share(
        self, device: str, holder: str, instances: int, need: MemoryRequirement
    ) -> InstanceGrant:
        """Raises OverBudget."""
        least, wanted, loading = need
        need = MemoryRequirement(least + loading, wanted + loading)
        await self._make_room(device, self._ledger.lacking(device, need))
        eviction = NOBODY
        if lacking := self._ledger.lacking(device, need):
            eviction = await self._make_room_by_eviction(device, lacking, holder)
        try:
            return InstanceGrant(self._ledger.ask(device, holder, need), instances, loading)
        except OverBudget as error:
            held = f"; of those that load on demand {', '.join(eviction.held)}"
            explained = OverBudget(f"{error}{held if eviction.held else ''}")
            explained.may_pass = eviction.may_pass
            raise explained from None

    def budgeted(self, version: ModelVersion, held: MemoryHolding) -> ModelVersion:
        """The version as it is to be loaded: told how much memory each of its instances has."""
        return handed_down(
            version,
            ((one.grant.device, one.grant.bytes // one.instances) for one in held.shares),
        )

    def add(self, held: MemoryHolding, more: MemoryHolding) -> None:
        """`held` holds what `more` held, too."""
        held.shares += more.shares
        more.shares = []
        self._held.discard(more)

    def loaded(
        self,
        held: MemoryHolding,
        devices: Iterable[Device],
        measured: Mapping[str, int],
        scheduler: Any,
    ) -> None:
        """The instances are there. `measured`: bytes of each, by device; 0 or none where that is
        not known."""
        self.resized(held, devices)
        for share in held.shares:
            if each := measured.get(share.grant.device):
                share.grant = self._ledger.settle(share.grant, each * share.instances)
            elif share.loading:
                bytes = max(0, share.grant.bytes - share.loading)
                share.grant = self._ledger.settle(share.grant, bytes)
            share.loading = 0
        held.shrink = getattr(scheduler, "shrink", None)
        held.grow = getattr(scheduler, "grow", None)

    def resized(self, held: MemoryHolding, devices: Iterable[Device]) -> None:
        """Only the instances on `devices` are there still, or at all; the rest is returned."""
        left = Counter(device_name(device) for device in devices)
        for share in held.shares:
            kept = min(share.instances, left[share.grant.device])
            left[share.grant.device] -= kept
            if kept < share.instances:
                bytes = share.grant.bytes * kept // share.instances
                share.grant, share.instances = self._ledger.correct(share.grant, bytes), kept

    async def closed(self, held: MemoryHolding) -> None:
        """What held it is closed: return it once the process has returned it to the system."""
        if held.inside:
            await asyncio.to_thread(return_free_memory)
        self.release(held)

    def release(self, held: MemoryHolding) -> None:
        """Return everything; a second time changes nothing."""
        for share in held.shares:
            self._ledger.release(share.grant)
        self._held.discard(held)
        if self._loop is not None and not self._loop.is_closed() and self._growing is None:
            self._growing = self._loop.create_task(self._give_again())

    def release_soon(self, held: MemoryHolding) -> None:
        """As `release`, from any thread."""
        if self._loop is not None:
            with suppress(RuntimeError):  # the loop has ended, and the server with it
                self._loop.call_soon_threadsafe(self.release, held)

    async def _make_room(self, device: str, lacking: int) -> None:
        """Have `lacking` bytes given back by those who only cache in them, as far as they can.

        One answer may be less than was asked for: memory goes back by whole pages.
        """
        for grant in self._ledger.elastic(device) if lacking else ():
            found = self._behind(grant)
            while found is not None and lacking > 0:
                held, share = found
                spare = share.grant.bytes - share.grant.least
                ask_bytes = min(spare, max(lacking, LEAST_ASKED))
                given = min(spare, await _within_time(held.shrink, ask_bytes, grant))
                share.grant = self._ledger.correct(share.grant, share.grant.bytes - given)
                lacking -= given
                if not given:
                    break

    async def _give_again(self) -> None:
        """What was taken back returns to who had it, while there is room."""
        try:
            async with self._turns:
                for offer in self._ledger.offers(self._can_grow):
                    found = self._behind(offer.grant)
                    if found is not None and found[0].grow is not None:
                        held, share = found
                        taken = await _within_time(held.grow, offer.bytes, offer.grant)
                        share.grant = self._ledger.correct(share.grant, share.grant.bytes + taken)
        finally:
            self._growing = None

    def _can_grow(self, grant: MemoryGrant) -> bool:
        found = self._behind(grant)
        return found is not None and found[0].grow is not None

    def _behind(self, grant: MemoryGrant) -> tuple[MemoryHolding, InstanceGrant] | None:
        for held in self._held:
            for share in held.shares:
                if share.grant.number == grant.number:
                    return held, share
        return None


def device_name(device: Device) -> str:
    """As budgets and grants name it: "cpu", "cuda:0"."""
    return device.kind if device.kind == "cpu" else f"{device.kind}:{device.index}"


async def _within_time(resize: Resize | None, bytes: int, grant: MemoryGrant) -> int:
    """0 when the model does not answer, or cannot; the ledger goes on without it."""
    if resize is None:
        return 0
    try:
        async with asyncio.timeout(SHRINK_S):
            return max(0, await resize(bytes))
    except Exception as error:  # noqa: BLE001 (whatever ails that model, others are to load)
        _log.warning("%s was asked for %d bytes of memory: %r", grant.holder, bytes, error)
        return 0

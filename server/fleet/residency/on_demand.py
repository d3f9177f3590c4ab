"""One version that is loaded by its first request, and may be evicted while nobody uses it.

It is the version's scheduler while the version is not resident: requests wait here for the one load
that the first of them began. While it is resident, `ServedVersion.scheduler` is the real one, so
that requests to it pay nothing. `server.fleet.residency.residency` decides when it leaves.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Protocol, cast

from backends.errors import BackendError, SequenceLost
from backends.seam import Instance
from repository.errors import RepositoryError
from repository.model import ModelConfig, ModelVersion
from schedulers.errors import Draining, ShutDown, UnknownSequence
from schedulers.policy.queue import Ticket
from schedulers.request import InferRequest
from schedulers.sequences.batcher import SequenceBatcher
from server.errors import NotReady
from server.fleet.built_version import BuiltVersion
from server.fleet.memory.grants import MemoryHolding, MemoryShortage
from server.fleet.memory.shortage import pause_s, shortage_of
from server.fleet.placement import with_groups
from server.fleet.residency.policy import ResidencyFacts
from server.fleet.residency.relay import SHUT_DOWN, Relay
from server.fleet.residency.standby import StandbyInstance
from server.fleet.residency.terms import ResidencyTerms
from server.fleet.residency.waiting_requests import LoadTicket, WaitingLimits, WaitingRequests
from server.served_version import LOADING_ON_DEMAND, STANDBY, ServedVersion, not_ready_text

_log = logging.getLogger(__name__)

ROOM_PAUSE_S = 0.1
"""How soon a load that waits for others to become idle looks again."""
CLOSE_S = 1.0
"""How long answers that have come may still be carried to a reader who is slower than its model."""
SHORTAGE_LOG_S = 60.0
"""How often it is logged that memory lacks for one version."""

LoadVersion = Callable[[ModelConfig | None], Awaitable[BuiltVersion]]
"""Load the version, with the instance groups of another config where one is given. Raises
LoadFailed."""

ResizeVersion = Callable[[BuiltVersion, ModelVersion, Callable[[], None]], Awaitable[None]]
"""Give what is resident the instances that a config asks for, and call the last argument when it
has them, before those are closed that it has no more. Raises LoadFailed."""


class ResidencyOwner(WaitingLimits, Protocol):
    """What it tells of: see `server.fleet.residency.residency`."""

    def loaded(self, version: "OnDemandVersion", seconds: float) -> None:
        """A request, or a pin, has had it loaded."""

    def forget(self, version: "OnDemandVersion") -> None:
        """It is closed."""


class OnDemandVersion:
    """A `FleetScheduler`; on the loop's thread.

    `built`: as the fleet holds it, for good. `resident`: what is loaded now, None for nothing.
    `pinned`: by an operator; by its terms it is anyway.
    """

    def __init__(
        self,
        served: ServedVersion,
        terms: ResidencyTerms,
        load: LoadVersion,
        owner: ResidencyOwner,
    ) -> None:
        self.terms = terms
        self.name = f"{served.version.name} version {served.version.number}"
        self.served = served
        self.built: BuiltVersion
        self.resident: BuiltVersion | None = None
        self.loaded_at = self.last_used = 0.0
        self._load_version = load
        self._groups: ModelConfig | None = None
        self._owner = owner
        self._standby = StandbyInstance()
        self._waiting = WaitingRequests(served, owner)
        self._relays: set[asyncio.Task[None]] = set()
        self._loading: asyncio.Task[None] | None = None
        self._leaving: asyncio.Task[None] | None = None
        self._failures = 0
        self._retry_at = self._log_at = 0.0
        self.accepting = True

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def loading(self) -> bool:
        return self._loading is not None

    @property
    def state(self) -> str:
        """For the index; "" while it is loaded."""
        if self.loading:
            return LOADING_ON_DEMAND
        return "" if self.resident is not None else STANDBY

    # the seam

    def submit(self, request: InferRequest) -> Ticket:
        """As the seam says, while the version is not resident. Raises NotReady where too many wait,
        and while a load that has failed is not tried again yet."""
        if not self.accepting:
            raise Draining(f"{request.model} version {request.version} is being unloaded")
        self._refuse_early()
        ticket = Ticket(request)
        self._waiting.add(ticket)
        self.begin_loading()
        return ticket

    def inflight(self) -> int:
        resident = self.resident
        inside = 0 if resident is None else resident.scheduler.inflight()
        return inside + len(self._waiting)

    def hung(self) -> int:
        return 0

    def holds(self, key: int | str) -> bool:
        """Whether the sequence lives here, or waits here to begin."""
        if self._waiting.holds(key):
            return True
        inside = None if self.resident is None else self.resident.scheduler
        return isinstance(inside, SequenceBatcher) and inside.holds(key)

    async def drain(self, until_ns: int) -> None:
        self.accepting = False
        while self._waiting and time.monotonic_ns() < until_ns:
            await self._within(until_ns, self._loading)
        if self.resident is not None:
            await self.resident.scheduler.drain(until_ns)
        while self._relays and time.monotonic_ns() < until_ns:
            await self._within(until_ns, *self._relays)

    async def close(self) -> None:
        self.accepting = False
        self._owner.forget(self)
        if self._loading is not None:
            self._loading.cancel()
            await asyncio.wait([self._loading])
        self._waiting.fail(ShutDown(SHUT_DOWN))
        if self._leaving is not None:
            await asyncio.wait([self._leaving])
        resident, self.resident = self.resident, None
        if resident is not None:
            self.served.scheduler, self.served.instances = self, (self._stand_in(),)
            await resident.close()
        if self._relays:
            _, slow = await asyncio.wait(self._relays, timeout=CLOSE_S)
            for relay in slow:
                relay.cancel()

    async def resize(self, instances: Sequence[Instance], until_ns: int) -> None:
        if self.resident is not None:
            await self.resident.scheduler.resize(instances, until_ns)

    # in and out

    async def loaded(self) -> None:
        """Return when it is resident. Raises as a request that waits for it is refused."""
        while self.resident is None or self._leaving is not None:
            self._refuse_early()
            ticket = LoadTicket()
            self._waiting.add(ticket)
            self.begin_loading()
            async for _ in ticket:
                pass

    def begin_loading(self) -> None:
        if self.resident is None and self._loading is None and self.accepting:
            self._loading = asyncio.create_task(self._load())

    def evict(self) -> "asyncio.Task[None] | None":
        """Begin to give back what it holds; None where it holds nothing. Call it in the turn in
        which nobody uses it."""
        resident = self.resident
        if resident is None or self._leaving is not None:
            return None
        self.stand_by()
        self._leaving = asyncio.create_task(self._close(resident))
        return self._leaving

    async def reshape(self, written: ModelVersion, resize: ResizeVersion) -> None:
        """Have the instances that `written` asks for, now or from the next load on. Raises
        LoadFailed and changes nothing then."""
        before, self._groups = self._groups, written.config
        resident = self.resident
        if resident is None:  # a load under way sees that it was for others
            config = with_groups(self.served.version.config, written.config)
            self.served.version = replace(self.served.version, config=config)
            return
        self.served.keep()
        try:
            await resize(resident, written, partial(self._show_resident, resident))
        except BaseException:
            self._groups = before
            raise
        finally:
            self.served.release()

    def _show_resident(self, resident: BuiltVersion) -> None:
        if self.resident is resident:
            self._show(resident)

    def facts(self, device: str, now: float, pinned: bool) -> ResidencyFacts:
        """`now` on time.monotonic."""
        resident, counters = self.resident, self.served.counters
        used = counters.last_inference_ms / 1000 - time.time() + now
        self.last_used = max(self.last_used, used if counters.last_inference_ms else 0.0)
        return ResidencyFacts(
            name=self.name,
            resident=resident is not None and self._leaving is None,
            bytes=0 if resident is None else resident.held.on(device),
            loaded_at=self.loaded_at,
            last_used=self.last_used,
            terms=self.terms,
            inflight=self.inflight() + len(self._relays),
            kept=self.served.holds,
            sequences=0 if counters.sequences is None else counters.sequences.live,
            pinned=pinned or self.terms.pinned,
            moving=self._leaving is not None
            or (self.loading and self.built.memory.has_granted(self.name)),
        )

    def stand_by(self) -> None:
        """Requests come here from now on."""
        self.resident = None
        self.served.scheduler, self.served.instances = self, (self._stand_in(),)
        self.built.devices = self.built.names = ()
        self.built.held = MemoryHolding()

    def use(self, resident: BuiltVersion) -> None:
        """It is loaded: requests go to it from now on."""
        self.resident = resident
        self.loaded_at = time.monotonic()
        self._failures = 0
        self._standby.ready, self._standby.not_ready_reason = True, ""
        self._show(resident)

    def _show(self, resident: BuiltVersion) -> None:
        served, now = self.served, resident.served
        served.version, served.signature = now.version, now.signature
        served.language, served.load_seconds = now.language, now.load_seconds
        served.load_phases = now.load_phases
        served.instances, served.scheduler = now.instances, resident.scheduler
        self.built.devices, self.built.names = resident.devices, resident.names
        self.built.held = resident.held

    def _stand_in(self) -> Instance:
        return cast(Instance, self._standby)

    async def _close(self, resident: BuiltVersion) -> None:
        try:
            await resident.scheduler.drain(time.monotonic_ns())
            await resident.close()
        finally:
            self._leaving = None

    async def _load(self) -> None:
        """The one load that all who wait share."""
        began = time.monotonic()
        try:
            if self._leaving is not None:
                await asyncio.wait([self._leaving])
            self.use(await self._loaded_when_there_is_room())
        except Exception as error:  # noqa: BLE001 (carried to whoever asked)
            self._loading = None
            self._failed(error)
            return
        finally:
            self._loading = None
        seconds = time.monotonic() - began
        _log.info("%s: loaded on demand in %.3f s", self.name, seconds)
        self._owner.loaded(self, seconds)
        while self._waiting:
            self._hand_over(self._waiting.pop())

    async def _loaded_when_there_is_room(self) -> BuiltVersion:
        """Others may only be busy: look again while somebody waits. Raises LoadFailed."""
        self._waiting.shortage = ""
        while True:
            groups = self._groups
            try:
                built = await self._load_version(groups)
            except MemoryShortage as error:
                self._waiting.drop_ended()
                if not error.may_pass or not self._waiting:
                    raise
                self._waiting.shortage = str(error)
                await asyncio.sleep(ROOM_PAUSE_S)
                continue
            if self._groups is groups:
                return built
            await built.close()  # other instances are asked for by now

    def _hand_over(self, ticket: Ticket) -> None:
        resident = self.resident
        if ticket.ended or resident is None:
            return
        if isinstance(ticket, LoadTicket):
            ticket.close()
            return
        try:
            reply = resident.scheduler.submit(ticket.request)
        except (UnknownSequence, SequenceLost) as error:  # of a version that was just loaded
            self._waiting.fail_one(ticket, error)
            return
        except Exception as error:  # noqa: BLE001 (carried to whoever asked)
            ticket.fail(error)
            return
        task = asyncio.create_task(Relay(ticket, reply).run())
        self._relays.add(task)
        task.add_done_callback(self._relays.discard)

    # refusals

    def _refuse_early(self) -> None:
        if awaited := self._early_refusal():
            version = self.served.version
            refused = NotReady(not_ready_text(version.name, version.number), awaited)
            self._waiting.count(refused)
            raise refused

    def _early_refusal(self) -> str:
        if time.monotonic() < self._retry_at and self._standby.not_ready_reason:
            return f"version {self.served.version.number} has {self._standby.not_ready_reason}"
        return self._waiting.excess()

    def _failed(self, error: Exception) -> None:
        """Refuse who waits, and, unless it is memory that lacks, those who come until it is tried
        again."""
        number, name = self.served.version.number, self.served.version.name
        ours = isinstance(error, BackendError | RepositoryError)
        text = str(error) if ours else f"{type(error).__name__}: {error}"
        self._log_failure(text, error, ours or bool(shortage_of(error)))
        reason = f"not been loaded on demand: {self._owner.shown(text)}"
        if not isinstance(error, MemoryShortage):
            self._failures += 1
            pause = pause_s(min(self._failures, 8)) or 60.0
            self._retry_at = time.monotonic() + pause
            self._standby.ready, self._standby.not_ready_reason = False, reason
            loop = asyncio.get_running_loop()
            loop.call_later(pause, self._allow_again, self._retry_at)
        self._waiting.fail(NotReady(not_ready_text(name, number), f"version {number} has {reason}"))

    def _log_failure(self, text: str, error: Exception, expected: bool) -> None:
        """Memory that lacks lets every request try; that is told now and then."""
        now = time.monotonic()
        if isinstance(error, MemoryShortage):
            if now < self._log_at:
                return
            self._log_at = now + SHORTAGE_LOG_S
        trace = None if expected else error
        _log.error("%s could not be loaded on demand: %s", self.name, text, exc_info=trace)

    def _allow_again(self, retry_at: float) -> None:
        if self._retry_at == retry_at:
            self._standby.ready = True

    @staticmethod
    async def _within(until_ns: int, *tasks: "asyncio.Task[None] | None") -> None:
        left = max(0.0, (until_ns - time.monotonic_ns()) / 1e9)
        waiting = [task for task in tasks if task is not None]
        if waiting:
            await asyncio.wait(waiting, timeout=left)
        else:
            await asyncio.sleep(min(left, ROOM_PAUSE_S))

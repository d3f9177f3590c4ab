"""Build one Served: check it, load it on a thread, give it a scheduler.

Called by `server.fleet.version_swapper`. Whatever blocks happens on a thread of its own; the loop
only waits.
"""

import asyncio
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import NamedTuple, cast

from backends.environments.environments import Leased, Tell
from backends.errors import BackendError, LoadFailed
from backends.footprint import is_inside, measured_bytes, need_of
from backends.limits import execution_limit
from backends.process.call_link import CallService
from backends.registry import ENSEMBLE, runtime_for
from backends.seam import Instance
from repository.config.normalise import validate_complete
from repository.errors import RepositoryError
from repository.model import ModelConfig, ModelVersion
from schedulers.build import SharedState, build_language
from schedulers.build import build as build_scheduler
from schedulers.cache import ResponseCache
from schedulers.calls import ModelCaller, NoCaller
from schedulers.counters import Counters, counters_of
from schedulers.policy.cores import CoreTokens
from server.fleet.abandon import work_or_undo
from server.fleet.built_version import BuiltVersion, FleetScheduler
from server.fleet.checks.check import Checker
from server.fleet.client_paths import client_paths
from server.fleet.config_notes import log_notes
from server.fleet.confine import Confiner
from server.fleet.ensemble_loading import prepare_ensemble
from server.fleet.memory.grants import MemoryAllocator, MemoryHolding, device_name
from server.fleet.memory.measurements import MemoryMeasurements
from server.fleet.memory.meter import MEASURABLE_BYTES, MeasuredBytes, plausible
from server.fleet.override_code import CodeOf, asked_of
from server.fleet.package_environments import LoadEnvironments
from server.fleet.placement import (
    Placement,
    asks_for_gpu,
    difference,
    place,
    resolve,
    visible_gpus,
    with_groups,
)
from server.fleet.prepare import PreparedVersion, Timeouts, close_all, prepare
from server.fleet.rate_limits import RateLimits
from server.fleet.residency.on_demand import OnDemandVersion
from server.fleet.residency.residency import Residency
from server.fleet.residency.standby import stand_by, terms_of
from server.fleet.residency.terms import ResidencyTerms
from server.fleet.version_origin import refuse_mapped_weights
from server.served_version import ServedVersion
from server.settings.table import Settings

LEAST_MEASURED = 1 << 20
"""A difference below this is noise: other threads have freed more than the load took."""
_log = logging.getLogger(__name__)


def _nothing(*_: object) -> None:
    """Nobody looks at what a load is doing, or what it has changed."""


class LoadResult(NamedTuple):
    """What a load brought, what it holds, and what each of its instances on a device measures, 0
    where that is not known."""

    parts: PreparedVersion
    held: MemoryHolding
    measured: dict[str, int]


class VersionLoader:
    """Builds versions, `settings.model_load_thread_count` at a time; on the loop's thread."""

    def __init__(
        self,
        checker: Checker,
        tokens: CoreTokens,
        settings: Settings,
        confiner: Confiner | None = None,
        caller: ModelCaller | None = None,
        scripts: CallService | None = None,
    ) -> None:
        """`confiner`: says what workers may do; without one they may do what this process may.
        `caller`: carries models' calls to other models; `scripts`: answers python models."""
        self._scripts = scripts
        self._caller = caller or NoCaller()
        self._checker = checker
        self._tokens = tokens
        self._settings = settings
        self._timeouts = Timeouts(
            settings.model_load_timeout_secs, settings.model_execute_timeout_secs
        )
        self._confiner = confiner
        self._environments = LoadEnvironments(settings, confiner)
        self._gpus = visible_gpus()
        self.residency = Residency(
            settings.state_dir,
            settings.on_demand_max_waiting,
            settings.on_demand_timeout_secs,
            client_paths(settings),
        )
        measurements = MemoryMeasurements(settings.state_dir)
        self.memory = MemoryAllocator(
            settings.memory_budgets, measurements, self.residency.make_room
        )
        self._begun: set[str] = set()
        self._alone = asyncio.Lock()  # what a load takes while it loads is granted to one at a time
        self._learning = asyncio.Lock()  # of those in processes, where a load is to tell tensors
        self._limits = RateLimits(settings)
        self.limiter = self._limits.limiter
        self._cache = ResponseCache(settings.cache_bytes) if settings.cache_bytes else None
        self._slots = asyncio.Semaphore(settings.model_load_thread_count)

    def code_of(self) -> CodeOf:
        """The checker's answers, for other threads."""
        return asked_of(self._checker)

    async def build(self, version: ModelVersion, tell: Tell = _nothing) -> BuiltVersion:
        """Load and warm a version, again if it fails and the settings allow for retries. `tell`:
        takes what it is doing where that takes long, from any thread. Nothing is left behind when
        it raises. Raises LoadFailed with the reason."""
        for left in range(self._settings.model_load_retry_count, 0, -1):
            try:
                return await self._build(version, tell)
            except (BackendError, RepositoryError) as error:
                _log.warning(
                    "%s %d: load failed, retries left: %d: %s",
                    version.name,
                    version.number,
                    left,
                    error,
                )
        return await self._build(version, tell)

    async def _build(self, version: ModelVersion, tell: Tell) -> BuiltVersion:
        began = time.monotonic()
        config = await self._checker.complete(version)
        log_notes(version, config.backend)
        refuse_mapped_weights(version, self._settings)
        if config.platform == ENSEMBLE:
            return await self._build_ensemble(replace(version, config=config), began)
        version = replace(version, config=config)
        terms = terms_of(version, self._settings)
        if not terms.on_demand:
            return await self._build_loaded(version, counters_of(config), began, tell)
        return await self._build_on_demand(version, terms, began, tell)

    async def _build_on_demand(
        self, version: ModelVersion, terms: ResidencyTerms, began: float, tell: Tell
    ) -> BuiltVersion:
        """One that its first request loads. It is loaded at once where it is pinned, or takes the
        place of one that is in use. One whose inputs and outputs only a load tells is loaded for
        that alone."""
        counters, name = counters_of(version.config), version.name
        resident = None
        if terms.pinned or self.residency.pinned(name) or self.residency.is_warm(name):
            resident = await self._build_loaded(version, counters, began, tell)
            version = resident.served.version
        elif validate_complete(version.config):
            async with self._alone if is_inside(version) else self._learning:
                loaded = await self._build_loaded(version, counters, began, tell)
                version = loaded.served.version
                await loaded.close()
        shown = replace(version, config=self._options(version.config)[0])
        try:
            served = await stand_by(shown, counters, time.monotonic() - began)
        except BaseException:
            if resident is not None:
                await resident.close()
            raise

        async def load(groups: ModelConfig | None) -> BuiltVersion:
            wanted = version
            if groups is not None:
                wanted = replace(version, config=with_groups(version.config, groups))
            async with self._alone if is_inside(wanted) else nullcontext():
                return await self._build_loaded(wanted, counters, time.monotonic())

        on_demand = OnDemandVersion(served, terms, load, self.residency)
        built = BuiltVersion(served, on_demand, (), (), MemoryHolding(), self.memory)
        on_demand.built = built
        on_demand.stand_by()
        if resident is not None:
            on_demand.use(resident)
        self.residency.add(on_demand)
        return built

    async def _build_loaded(
        self, version: ModelVersion, counters: Counters, began: float, tell: Tell = _nothing
    ) -> BuiltVersion:
        prepared = await self._load(version, self._options(version.config), tell)
        parts = prepared.parts
        try:
            self._limits.register(parts.version.config, parts.instances)
        except LoadFailed:
            self._undo(prepared)
            raise
        scheduler = self._scheduler(parts, counters)
        served = ServedVersion(
            version=parts.version,
            signature=parts.signature,
            scheduler=scheduler,
            counters=counters,
            instances=tuple(parts.instances),
            load_seconds=time.monotonic() - began,
            language=parts.language,
            load_phases=parts.load_phases,
        )
        self.memory.loaded(prepared.held, parts.devices, prepared.measured, scheduler)
        places = tuple(parts.devices), tuple(parts.names)
        return BuiltVersion(served, scheduler, *places, prepared.held, self.memory)

    async def _build_ensemble(self, version: ModelVersion, began: float) -> BuiltVersion:
        counters = counters_of(version.config)
        most = self._settings.default_max_queue_size
        prepared = await prepare_ensemble(version, self._caller, counters, most)
        served = ServedVersion(
            version=prepared.version,
            signature=prepared.signature,
            scheduler=prepared.scheduler,
            counters=counters,
            instances=(cast(Instance, prepared.ensemble),),  # nobody else sets its `ready`
            load_seconds=time.monotonic() - began,
        )
        return BuiltVersion(served, prepared.scheduler, (), (), MemoryHolding(), self.memory)

    def _scheduler(self, parts: PreparedVersion, counters: Counters) -> FleetScheduler:
        if parts.language is not None:
            return build_language(parts.version, parts.language, parts.instances, counters)
        return build_scheduler(
            parts.version.config,
            parts.instances,
            counters,
            self._tokens,
            self._settings.default_max_queue_size,
            SharedState(self._cache, self.limiter),
            execution_limit(parts.version, self._timeouts.execute),
        )

    async def resize(
        self, built: BuiltVersion, written: ModelVersion, changed: Callable[[], None] = _nothing
    ) -> None:
        """Give `built` the instances that `written` asks for, in place; queue and counters stay.
        `changed`: called before any is closed. Raises LoadFailed and changes nothing then."""
        if isinstance(built.scheduler, OnDemandVersion):
            await built.scheduler.reshape(written, self.resize)
            return
        served = built.served
        config = self._options(with_groups(served.version.config, written.config))[0]
        self._limits.check(config, served.instances)
        version = replace(served.version, config=config)
        ready = [instance.ready for instance in served.instances]
        placements = place(config, self._settings.cores)
        keep, missing = difference(placements, built.devices, built.names, ready)
        instances = [served.instances[index] for index in keep]
        devices, names = [built.devices[i] for i in keep], [built.names[i] for i in keep]
        if missing:
            prepared = await self._prepare(version, missing)
            if built.closed:
                self._undo(prepared)
                raise LoadFailed(f"model '{version.name}' version {version.number} was unloaded")
            self.memory.add(built.held, prepared.held)
            instances += prepared.parts.instances
            devices += prepared.parts.devices
            names += prepared.parts.names
        self._limits.register(config, instances)
        built.devices, built.names = tuple(devices), tuple(names)
        served.instances, served.version = tuple(instances), version
        changed()
        if self._scripts is not None:
            self._scripts.resized()
        patience_ns = int(self._settings.exit_timeout_secs * 1e9)
        await built.scheduler.resize(instances, time.monotonic_ns() + patience_ns)
        self.memory.resized(built.held, devices)

    async def _load(
        self, version: ModelVersion, options: Sequence[ModelConfig], tell: Tell
    ) -> LoadResult:
        """By the first of the configs that works. Raises the last one's LoadFailed."""
        cores = self._settings.cores
        for config in options[:-1]:
            try:
                self._limits.check(config)
                chosen = replace(version, config=config)
                return await self._prepare(chosen, place(config, cores), tell)
            except LoadFailed as error:
                _log.warning(
                    "%s version %d cannot use the GPU, falling back to the CPU: %s",
                    version.name,
                    version.number,
                    error,
                )
        config = options[-1]
        self._limits.check(config)
        return await self._prepare(replace(version, config=config), place(config, cores), tell)

    async def _prepare(
        self, version: ModelVersion, placements: Sequence[Placement], tell: Tell = _nothing
    ) -> LoadResult:
        """Its environment first, then memory, then the load on a thread. Whatever way it fails, all
        are returned: at once, or when a load nobody waits for any more has come to its end."""
        limit = self._settings.model_load_timeout_secs
        leased = await self._environments.lease(version, tell)
        try:
            async with self._slots, asyncio.timeout(limit):
                held = await self.memory.take(version, placements)
                budgeted = self.memory.budgeted(version, held)
                held.inside = is_inside(version) and held.on("cpu") > 0
                work = partial(self._work, budgeted, placements, held, leased and leased.again())
                return await work_or_undo(work, self._undo)
        except TimeoutError:
            raise LoadFailed(
                f"model '{version.name}' version {version.number} took longer to load than "
                f"--model-load-timeout-secs={limit:g} allows"
            ) from None
        finally:
            if leased is not None:
                leased.close()

    def _work(
        self,
        version: ModelVersion,
        placements: Sequence[Placement],
        held: MemoryHolding,
        leased: Leased | None,
    ) -> LoadResult:
        measurable = held.inside and held.on("cpu") >= MEASURABLE_BYTES
        reading = self.memory.meter.begin() if measurable else None
        try:
            parts = self._prepared(version, placements, leased)
        except BaseException:
            self.memory.release_soon(held)
            raise
        finally:
            found = None if reading is None else self.memory.meter.end(reading)
        return LoadResult(parts, held, self._measured(version, parts, found))

    def _measured(
        self, version: ModelVersion, parts: PreparedVersion, found: MeasuredBytes | None
    ) -> dict[str, int]:
        """Bytes of each instance by device, which are remembered; `found`: of a load in this
        process."""
        counts = Counter(map(device_name, parts.devices))
        measured: dict[str, int] = {}
        for instance, device in zip(parts.instances, parts.devices, strict=True):
            name = device_name(device)
            measured[name] = max(measured.get(name, 0), measured_bytes(version, instance))
        backend = version.config.backend
        if found is not None and backend not in self._begun:
            self._begun.add(backend)  # what the runtime itself takes for good is in it
        elif found is not None and set(counts) == {"cpu"} and found.resident >= LEAST_MEASURED:
            need = need_of(version, counts["cpu"])
            found = plausible(found, need.least + need.loading)
            measured["cpu"] = -(-found.resident // counts["cpu"])
        for name, each in measured.items():
            if count := counts[name] if each else 0:
                peak = found.peak if found is not None else each * count
                typical = self.memory.measurements.record(version, count, name, each * count, peak)
                if found is not None:  # by the process's own difference, which is not exact
                    measured[name] = -(-typical // count)
        return measured

    def _prepared(
        self, version: ModelVersion, placements: Sequence[Placement], leased: Leased | None
    ) -> PreparedVersion:
        interpreter = leased.interpreter if leased is not None else None
        confiner = self._confiner
        try:
            confined = None if confiner is None else confiner.confinement_of(version, interpreter)
            return prepare(
                version, placements, self._timeouts, confined, self._scripts, interpreter
            )
        finally:
            if leased is not None:
                leased.close()

    def _undo(self, prepared: LoadResult) -> None:
        close_all(prepared.parts.instances)
        self.memory.release_soon(prepared.held)

    def _options(self, config: ModelConfig) -> list[ModelConfig]:
        """Configs with resolved instance groups to try in order: what is best here, then the CPU
        if that is allowed."""
        runtime = runtime_for(config)
        best = resolve(config, runtime, self._settings.cores, self._gpus)
        if asks_for_gpu(config):
            return [best]
        on_cpu = resolve(config, runtime, self._settings.cores, ())
        return [best] if best == on_cpu else [best, on_cpu]

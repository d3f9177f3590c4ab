"""Build one Served: check it, load it on a thread, give it a scheduler.

Called by `server.fleet.version_swapper`. Whatever blocks happens on a thread of its own; the loop
only waits.
"""

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, cast

from backends.environments.environments import PythonEnvironments, Tell
from backends.environments.sources import PackageSources
from backends.environments.store import EnvironmentStore
from backends.errors import BackendError, LoadFailed
from backends.footprint import measured_bytes
from backends.limits import execution_limit
from backends.process.call_link import CallService
from backends.registry import ENSEMBLE, runtime_for
from backends.seam import Device, Instance
from repository.config.field_rules import notes
from repository.config.positions import Positions
from repository.errors import RepositoryError
from repository.folders.walk import CONFIG_NAME
from repository.model import ModelConfig, ModelVersion
from schedulers.build import SharedState, build_language
from schedulers.build import build as build_scheduler
from schedulers.cache import ResponseCache
from schedulers.calls import ModelCaller, NoCaller
from schedulers.counters import Counters, counters_of
from schedulers.policy.cores import CoreTokens
from schedulers.seam import Scheduler
from server.fleet.abandon import work_or_undo
from server.fleet.checks.check import Checker
from server.fleet.confine import Confiner
from server.fleet.ensemble_loading import prepare_ensemble
from server.fleet.memory.grants import MemoryAllocator, MemoryHolding, device_name
from server.fleet.override_code import CodeOf, asked_of
from server.fleet.placement import (
    Placement,
    asks_for_gpu,
    place,
    resolve,
    visible_gpus,
    with_groups,
)
from server.fleet.prepare import PreparedVersion, Timeouts, close_all, prepare
from server.fleet.rate_limits import RateLimits
from server.served_version import ServedVersion
from server.settings.table import Settings

_log = logging.getLogger(__name__)


def _told_nobody(_doing: str) -> None:
    """Nobody looks at what a load is doing."""


class FleetScheduler(Scheduler, Protocol):
    """A scheduler whose instances may change in place."""

    async def resize(self, instances: Sequence[Instance], until_ns: int) -> None:
        """Run on exactly these from now on; return when the others are closed: when they are done,
        or `time.monotonic_ns` passes `until_ns`."""


@dataclass(slots=True, eq=False)
class BuiltVersion:
    """A version ready to serve, its scheduler, device and name of each of its instances, and the
    memory it `held` of what the server's `memory` has."""

    served: ServedVersion
    scheduler: FleetScheduler
    devices: tuple[Device, ...]
    names: tuple[str, ...]
    held: MemoryHolding
    memory: MemoryAllocator

    async def close(self) -> None:
        """Close the scheduler and what it runs on, and return the memory."""
        try:
            await self.scheduler.close()
        finally:
            self.memory.release(self.held)


class LoadResult(NamedTuple):
    """What a load brought, what it holds, and what the largest of its processes on each device
    measures, 0 where there is none."""

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
        self._environments = _environments_of(settings, confiner)
        self._gpus = visible_gpus()
        self.memory = MemoryAllocator(settings.memory_budgets)
        self._limits = RateLimits(settings)
        self.limiter = self._limits.limiter
        self._cache = ResponseCache(settings.cache_bytes) if settings.cache_bytes else None
        self._slots = asyncio.Semaphore(settings.model_load_thread_count)

    def code_of(self) -> CodeOf:
        """The checker's answers, for other threads."""
        return asked_of(self._checker)

    async def build(self, version: ModelVersion, tell: Tell = _told_nobody) -> BuiltVersion:
        """Load and warm a version, again if it fails and the settings allow for retries. `tell`:
        takes what it is doing where that takes long, from any thread.

        Nothing is left behind when it raises. Raises LoadFailed with the reason.
        """
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
        _log_notes(version, config.backend)
        if config.platform == ENSEMBLE:
            return await self._build_ensemble(replace(version, config=config), began)
        prepared = await self._load(version, self._options(config), tell)
        parts = prepared.parts
        counters = counters_of(config)
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
        )
        self.memory.loaded(prepared.held, parts.devices, prepared.measured, scheduler)
        devices, names = tuple(parts.devices), tuple(parts.names)
        return BuiltVersion(served, scheduler, devices, names, prepared.held, self.memory)

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

    async def resize(self, built: BuiltVersion, written: ModelVersion) -> None:
        """Give `built` the instances `written.config.instance_group` asks for, in place.

        Only the difference is loaded and closed; queue and counters stay. Raises LoadFailed and
        changes nothing then.
        """
        served = built.served
        config = self._options(with_groups(served.version.config, written.config))[0]
        self._limits.check(config, served.instances)
        version = replace(served.version, config=config)
        ready = [instance.ready for instance in served.instances]
        placements = place(config, self._settings.cores)
        keep, missing = difference(placements, built.devices, built.names, ready)
        instances = [served.instances[index] for index in keep]
        devices = [built.devices[index] for index in keep]
        names = [built.names[index] for index in keep]
        if missing:
            prepared = await self._prepare(version, missing)
            self.memory.add(built.held, prepared.held)
            instances += prepared.parts.instances
            devices += prepared.parts.devices
            names += prepared.parts.names
        self._limits.register(config, instances)
        built.devices, built.names = tuple(devices), tuple(names)
        served.instances = tuple(instances)
        served.version = version
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
        self, version: ModelVersion, placements: Sequence[Placement], tell: Tell = _told_nobody
    ) -> LoadResult:
        """Memory first, then the load on a thread. Whatever way it fails, both are returned: at
        once, or when a load nobody waits for any more has come to its end."""
        limit = self._settings.model_load_timeout_secs
        try:
            async with self._slots, asyncio.timeout(limit):
                held = await self.memory.take(version, placements)
                budgeted = self.memory.budgeted(version, held)
                work = partial(self._work, budgeted, placements, held, tell)
                return await work_or_undo(work, self._undo)
        except TimeoutError:
            raise LoadFailed(
                f"model '{version.name}' version {version.number} took longer to load than "
                f"--model-load-timeout-secs={limit:g} allows"
            ) from None

    def _work(
        self,
        version: ModelVersion,
        placements: Sequence[Placement],
        held: MemoryHolding,
        tell: Tell,
    ) -> LoadResult:
        try:
            parts = self._prepared(version, placements, tell)
        except BaseException:
            self.memory.release_soon(held)
            raise
        measured: dict[str, int] = {}
        for instance, device in zip(parts.instances, parts.devices, strict=True):
            name = device_name(device)
            measured[name] = max(measured.get(name, 0), measured_bytes(version, instance))
        return LoadResult(parts, held, measured)

    def _prepared(
        self, version: ModelVersion, placements: Sequence[Placement], tell: Tell
    ) -> PreparedVersion:
        confiner, environments = self._confiner, self._environments
        if confiner is None or environments is None:
            return prepare(version, placements, self._timeouts, None, self._scripts)
        leased = environments.lease(version, confiner.is_operators(version), tell)
        interpreter = leased.interpreter if leased is not None else None
        try:
            confined = confiner.confinement_of(version, interpreter)
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


def _environments_of(settings: Settings, confiner: Confiner | None) -> PythonEnvironments | None:
    if confiner is None:
        return None
    store = EnvironmentStore(
        settings.state_dir.absolute() / "environments", settings.environment_cache_limit
    )
    store.sweep()
    sources = PackageSources(
        settings.environment_index,
        settings.environment_wheel_dir,
        settings.environment_builds == "on",
        Path.home(),
    )
    secs = settings.model_load_timeout_secs
    return PythonEnvironments(store, confiner.build_sandbox, secs, sources)


def _log_notes(version: ModelVersion, backend: str) -> None:
    """Name in the log what the config gives without an effect."""
    found = notes(version.config, Positions(version.folder / CONFIG_NAME), backend)
    if found:
        text = "; ".join(note.message for note in found)
        _log.info("%s %d: %s: %s", version.name, version.number, CONFIG_NAME, text)


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

"""Build one Served: check it, load it on a thread, give it a scheduler. Called by `server.fleet`.

Whatever blocks happens on a thread of its own; the loop only waits.
"""

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

from backends.errors import BackendError, LoadFailed
from backends.registry import runtime_of
from backends.seam import Device
from repository.errors import RepositoryError
from repository.model import ModelConfig, ModelVersion
from schedulers.batching import BatchScheduler
from schedulers.build import build as build_scheduler
from schedulers.cache import ResponseCache
from schedulers.cached import CachedScheduler
from schedulers.cores import CoreTokens
from schedulers.counters import Counters
from server.abandon import work_or_undo
from server.check import Checker
from server.placement import Placement, asks_for_gpu, place, visible_gpus
from server.prepare import Parts, close_all, prepare
from server.served import Served
from server.settings import Settings

_log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False)
class Built:
    """A version ready to serve, its scheduler, and the device of each of its instances."""

    served: Served
    scheduler: BatchScheduler | CachedScheduler
    devices: tuple[Device, ...]


class Loader:
    """Builds versions, `settings.model_load_thread_count` at a time; on the loop's thread."""

    def __init__(self, checker: Checker, tokens: CoreTokens, settings: Settings) -> None:
        self._checker = checker
        self._tokens = tokens
        self._settings = settings
        self._gpus = visible_gpus()
        self._cache = ResponseCache(settings.cache_bytes) if settings.cache_bytes else None
        self._slots = asyncio.Semaphore(settings.model_load_thread_count)

    async def build(self, version: ModelVersion) -> Built:
        """Load and warm a version, again if it fails and the settings allow for retries.

        Nothing is left behind when it raises. Raises LoadFailed with the reason.
        """
        for left in range(self._settings.model_load_retry_count, 0, -1):
            try:
                return await self._build(version)
            except (BackendError, RepositoryError) as error:
                _log.warning(
                    "%s %d: load failed, tries left: %d: %s",
                    version.name,
                    version.number,
                    left,
                    error,
                )
        return await self._build(version)

    async def _build(self, version: ModelVersion) -> Built:
        began = time.monotonic()
        config = await self._checker.complete(version)
        completed = replace(version, config=config)
        parts = await self._prepare(partial(prepare, completed, self._options(config)), version)
        counters = Counters()
        scheduler = build_scheduler(
            parts.version.config,
            parts.instances,
            counters,
            self._tokens,
            self._settings.default_max_queue_size,
            self._cache,
        )
        served = Served(
            version=parts.version,
            signature=parts.signature,
            scheduler=scheduler,
            counters=counters,
            instances=tuple(parts.instances),
            load_seconds=time.monotonic() - began,
        )
        return Built(served, scheduler, tuple(parts.devices))

    async def resize(self, built: Built, written: ModelVersion) -> None:
        """Give `built` the instances `written.config.instance_group` asks for, in place.

        Only the difference is loaded and closed; queue and counters stay. Raises LoadFailed and
        changes nothing then.
        """
        served = built.served
        version = replace(served.version, config=_with_groups(served.version.config, written))
        wanted = self._options(version.config)[0]
        keep, missing = difference(wanted, built.devices)
        instances = [served.instances[index] for index in keep]
        devices = [built.devices[index] for index in keep]
        if missing:
            parts = await self._prepare(partial(prepare, version, [missing]), version)
            instances += parts.instances
            devices += parts.devices
        built.scheduler.resize(instances)
        built.devices = tuple(devices)
        served.instances = tuple(instances)
        served.version = version

    async def _prepare(self, work: Callable[[], Parts], version: ModelVersion) -> Parts:
        limit = self._settings.model_load_timeout_secs
        try:
            async with self._slots, asyncio.timeout(limit):
                return await work_or_undo(work, lambda parts: close_all(parts.instances))
        except TimeoutError:
            raise LoadFailed(
                f"model '{version.name}' version {version.number} took longer to load than "
                f"--model-load-timeout-secs={limit:g} allows"
            ) from None

    def _options(self, config: ModelConfig) -> list[tuple[Placement, ...]]:
        """Placements to try in order: what is best here, then the CPU if that is allowed."""
        runtime = runtime_of(config.backend)
        best = place(config, runtime, self._settings.cores, self._gpus)
        if asks_for_gpu(config):
            return [best]
        on_cpu = place(config, runtime, self._settings.cores, ())
        return [best] if best == on_cpu else [best, on_cpu]


def difference(
    wanted: Sequence[Placement], present: Sequence[Device]
) -> tuple[list[int], list[Placement]]:
    """Indexes of `present` that stay, and what is missing from `wanted` beside them."""
    keep: list[int] = []
    missing: list[Placement] = []
    for device, count in wanted:
        here = [i for i, one in enumerate(present) if one == device and i not in keep][:count]
        keep += here
        if len(here) < count:
            missing.append(Placement(device, count - len(here)))
    return keep, missing


def _with_groups(completed: ModelConfig, written: ModelVersion) -> ModelConfig:
    config = ModelConfig()
    config.CopyFrom(completed)
    del config.instance_group[:]
    config.instance_group.extend(written.config.instance_group)
    return config

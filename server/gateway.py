"""The composition root: everything a gateway is made of, started and ended in order.

`server.app` runs it on the event loop and tells it when to stop.
"""

import asyncio
import gc
import logging
import sys
import time

from repository.errors import RepositoryError
from repository.watch import Repository
from schedulers.cores import CoreTokens
from server import VERSION, trace, trace_config
from server.banner import banner
from server.check import Checker, Completion
from server.dataplane import DataPlane
from server.doors import CannotListen, Doors
from server.fleet import Fleet
from server.loading import Loader
from server.loop_lag import LoopLag
from server.served import VersionRow
from server.settings import Settings
from server.shared_memory import SharedMemory
from server.trace import CannotTrace, Tracing

COLLECT_AFTER = (50_000, 20, 50)
"""Collector thresholds: requests make next to no cycles, and a full collection stalled the loop for
16 ms; frozen after start-up, nothing long was left to collect under load."""

_log = logging.getLogger(__name__)


class Gateway:
    """One server, from its first open port until `stopping` is set and everything has ended."""

    def __init__(self, settings: Settings, stopping: asyncio.Event) -> None:
        self._settings = settings
        self._stopping = stopping
        self._lag = LoopLag()
        rules = Completion(
            not settings.disable_auto_complete_config, settings.default_max_batch_size
        )
        self._checker = Checker(settings.check_timeout_secs, rules=rules)
        self._repository = Repository(
            settings.model_repository,
            settings.repository_poll_secs,
            config_name=settings.model_config_name,
        )
        loader = Loader(self._checker, CoreTokens(settings.cores), settings)
        self._fleet = Fleet(loader, self._repository, settings)
        shared = SharedMemory(settings.allow_client_shm, settings.client_shm_max_tensor_size)
        self._dataplane = DataPlane(self._fleet, settings.id, VERSION, shared)
        self._doors = Doors()
        self._following: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Serve; the exit status."""
        try:
            self._dataplane.tracing = self._start_tracing()
            await self._doors.open(self._dataplane, self._lag, self._settings)
            return await self._serve()
        except (CannotListen, RepositoryError, CannotTrace) as error:
            _log.error("%s", error)  # the reason is all there is to tell; no traceback
            return 1
        finally:
            await self._end()

    def _start_tracing(self) -> Tracing:
        """Raises CannotTrace."""
        config = trace_config.parse(self._settings.trace_config)
        return trace.start(config, self._settings.id, VERSION)

    async def _serve(self) -> int:
        failed = await self._load()
        if failed is None:
            return 0
        sys.stdout.write(banner(self._fleet.rows(), self._doors.addresses))
        sys.stdout.flush()
        if failed and self._settings.exit_on_error:
            names = ", ".join(sorted({row.name for row in failed}))
            _log.error("failed to load %s; ending because of --exit-on-error", names)
            return 1
        _quiet_collector()
        self._lag.restart()
        await self._stopping.wait()
        return 0

    async def _load(self) -> list[VersionRow] | None:
        """The initial load, already following changes; None when a signal came first."""
        snapshot = await asyncio.to_thread(self._repository.snapshot)
        loading = asyncio.create_task(self._fleet.start(snapshot))
        if self._settings.model_control_mode != "none":
            self._following = asyncio.create_task(self._follow())
            self._following.add_done_callback(_report)
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([loading, stopping], return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loading.done():
            loading.cancel()
            return None
        return loading.result()

    async def _follow(self) -> None:
        async for snapshot in self._repository.changes():
            self._fleet.follow(snapshot)

    async def _end(self) -> None:
        """Not ready at once; then the doors, the models, and what served them."""
        self._dataplane.stopping = True
        until_ns = time.monotonic_ns() + int(self._settings.exit_timeout_secs * 1e9)
        _log.info("ending: requests inside have %g s", self._settings.exit_timeout_secs)
        self._repository.close()
        if self._following is not None:
            await asyncio.wait([self._following])
        await self._doors.stop(until_ns)
        await self._fleet.close(until_ns)
        if not await asyncio.to_thread(self._dataplane.tracing.close):
            _log.warning("some traces could not be written before the end")
        await self._doors.stop_metrics()
        await self._checker.close()
        self._lag.stop()


def _quiet_collector() -> None:
    """Take what start-up made out of the collector's sight, and let it look less often."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECT_AFTER)


def _report(task: "asyncio.Task[None]") -> None:
    """A pump that ended by an error has nobody to raise it to."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.critical(
            "changes in the repository are no longer followed. This is a bug.", exc_info=error
        )

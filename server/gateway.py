"""The composition root: everything a gateway is made of, started and ended in order.

`server.app` runs it on the event loop and tells it when to stop.
"""

import asyncio
import gc
import logging
import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any

from control.desired import Desired
from repository.errors import RepositoryError
from repository.model import Snapshot
from repository.watch import Repository
from schedulers.cores import CoreTokens
from server import VERSION
from server.access.gate import Gate
from server.banner import banner
from server.dataplane import DataPlane
from server.doors import CannotListen, Doors
from server.fleet.check import Checker, Completion
from server.fleet.fleet import Fleet
from server.fleet.loading import Loader
from server.metrics.loop_lag import LoopLag
from server.served import VersionRow
from server.settings import trace_config
from server.settings.table import Settings
from server.shared_memory import cuda
from server.shared_memory.regions import DISALLOWED, SharedMemory
from server.trace import tracing
from server.trace.tracing import CannotTrace, Tracing
from server.wanted import disk
from server.wanted.control import Control, Look
from server.wanted.instances import dying, running
from server.wanted.merge import aliases_of
from server.wanted.places import SNAPSHOTS
from server.wanted.repository import WantedRepository
from server.wanted.store import SnapshotStore

COLLECT_AFTER = (50_000, 20, 50)
"""Collector thresholds: requests make next to no cycles, and a full collection stalled the loop for
16 ms; frozen after start-up, nothing long was left to collect under load."""

HEAD_START_S = 5.0
"""How long the first loads have the cores to themselves before the control process is started: two
seconds of its imports made a start of six seconds out of one of three."""

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
        folders = Repository(
            settings.model_repository,
            settings.repository_poll_secs,
            config_name=settings.model_config_name,
        )
        desired = disk.read(settings.state_dir)
        self._control = (
            Control(settings, desired, self._want, self._look, self._counted, self._answer)
            if settings.allow_admin
            else None
        )
        self._repository = WantedRepository(
            folders,
            SnapshotStore(settings.store_folder / SNAPSHOTS),
            desired,
            settings.model_control_mode != "none",
        )
        loader = Loader(self._checker, CoreTokens(settings.cores), settings)
        self._fleet = Fleet(loader, self._repository, settings)
        shared = _shared_memory(settings)
        self._dataplane = DataPlane(self._fleet, settings.id, VERSION, shared)
        self._dataplane.gate = Gate(required=settings.inference_auth == "token")
        self._dataplane.starting = True
        self._dataplane.routing.feedback.open = self._control is not None
        self._doors = Doors()
        self._following: asyncio.Task[None] | None = None

    async def run(self) -> int:
        """Serve; the exit status."""
        try:
            self._dataplane.tracing = self._start_tracing()
            self._use(self._repository.desired)
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
        return tracing.start(config, self._settings.id, VERSION)

    def _want(self, desired: Desired) -> None:
        """The control process has told of a newer desired state."""
        self._use(desired)
        self._repository.want(desired)

    def _use(self, desired: Desired) -> None:
        self._dataplane.aliases = aliases_of(desired)
        self._dataplane.routing.use(
            desired.routes, desired.aliases, desired.experiments, desired.stamp_key
        )
        self._dataplane.gate.use(desired.grants)

    def _look(self) -> Look:
        return Look(self._fleet.rows(), self._fleet.settled, self._fleet.folders())

    def _counted(self, everything: bool) -> Iterator[dict[str, Any]]:
        """Frames for the link; each has been sent when the next one is asked for."""
        routing = self._dataplane.routing
        boot, lots = routing.windows.boot, list(routing.lots.rows()) if everything else None
        for rows in routing.windows.snapshot(everything):
            yield {"kind": "windows", "boot": boot, "rows": rows, "lots": lots}
            lots = None
        yield from routing.exposures.frames()
        yield from routing.feedback.frames()

    def _answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What the control process asks for: what runs here, or of sampled requests."""
        if asked["what"] == "running":
            return running(self._fleet.served(), self._fleet.memory.accounts())
        if asked["what"] == "dying":
            return dying(self._fleet.served())
        return self._dataplane.samples.answer(asked)

    async def _serve(self) -> int:
        failed = await self._load()
        self._dataplane.starting = False
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
        self._following = asyncio.create_task(self._follow())
        self._following.add_done_callback(_report)
        self._followed(snapshot)
        stopping = asyncio.create_task(self._stopping.wait())
        either = [loading, stopping]
        await asyncio.wait(either, timeout=HEAD_START_S, return_when=asyncio.FIRST_COMPLETED)
        if self._control is not None and not self._stopping.is_set():
            self._control.start()
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loading.done():
            loading.cancel()
            return None
        return loading.result()

    async def _follow(self) -> None:
        async for snapshot in self._repository.changes():
            self._fleet.follow(snapshot)
            self._followed(snapshot)

    def _followed(self, snapshot: Snapshot) -> None:
        if self._control is not None:
            self._control.followed(snapshot)

    async def _end(self) -> None:
        """Not ready at once; then the doors, the models, and what served them."""
        self._dataplane.stopping = True
        until_ns = time.monotonic_ns() + int(self._settings.exit_timeout_secs * 1e9)
        _log.info("ending: requests inside have %g s", self._settings.exit_timeout_secs)
        ending = asyncio.create_task(self._control.stop()) if self._control is not None else None
        self._repository.close()
        if self._following is not None:
            await asyncio.wait([self._following])
        await self._doors.stop(until_ns)
        await self._fleet.close(until_ns)
        if not await asyncio.to_thread(self._dataplane.tracing.close):
            _log.warning("some traces could not be written before the end")
        await self._doors.stop_metrics()
        await self._checker.close()
        if ending is not None:
            await ending
        self._lag.stop()


def _shared_memory(settings: Settings) -> SharedMemory:
    if not settings.allow_client_shm:
        return DISALLOWED
    return SharedMemory(True, settings.client_shm_max_tensor_size, cuda.find())


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

"""The composition root: everything a gateway is made of, started and ended in order.

`server.app` runs it on the event loop and tells it when to stop.
"""

import asyncio
import logging
import sys
import time
from collections.abc import Iterator
from contextlib import suppress

from control import state_paths
from control.desired import DesiredState
from control.drift.points import DriftScores, DriftStored, DriftWindow
from control.gateways.messages import ArmReports, Exposures, FeedbackRows
from control.gateways.queries import (
    CrashQuery,
    LoadedQuery,
    LogQuery,
    Query,
    QueryAnswer,
    RequestsQuery,
    ResidencyQuery,
    RunningQuery,
)
from control.series.points import SeriesStored, SeriesWindow
from control.state_paths import SNAPSHOTS, close_folder, socket_folder
from repository.errors import RepositoryError
from repository.folders.watch import WatchedRepository
from repository.model import Snapshot
from repository.snapshots.sealed_models import SnapshotStore
from server import VERSION
from server.access.authorizer import Authorizer
from server.banner import StartHint, banner, no_hint
from server.dataplane import DataPlane
from server.desired import disk
from server.desired.client import DesiredStateClient, FleetStatus
from server.desired.fleet_queries import answer_of_fleet
from server.desired.reconciler import Reconciler
from server.desired.repository import DesiredRepository
from server.drift.windows import DriftWindows
from server.fleet.confine import Confiner, confined_checker
from server.fleet.fleet import Fleet
from server.fleet.placement import visible_gpus
from server.health import kept
from server.health.health_checks import HealthChecks, bounds_of
from server.health.monitor import HealthMonitor
from server.listeners import CannotListen, Listeners
from server.logs.recent import RECENT
from server.metrics.custom import CustomMetrics
from server.process.collector import quiet_collector
from server.process.exit_deadline import ExitDeadline, draining_secs
from server.process.idle_trim import IdleTrim
from server.process.lifecycle import Lifecycle
from server.process.loop_lag import LoopLag
from server.script_surroundings import loader_of
from server.series.backlog import SeriesBacklog
from server.series.collector import SeriesCollector
from server.series.spool import WindowSpool
from server.series.windows import SeriesWindows
from server.served_version import VersionRow
from server.settings import trace_config
from server.settings.table import OWN_DATABASE, Settings
from server.shared_memory import cuda
from server.shared_memory.regions import DISALLOWED, SharedMemory
from server.trace.tracing import CannotTrace, Tracing, start_tracing

ANSWER_NS = 2_000_000_000
"""How long connections live on after the models are ended, to be told of it."""

HEAD_START_S = 5.0
"""How long the first loads have the cores to themselves before the control process is started where
nobody waits for it: its imports take most of a second."""

_log = logging.getLogger(__name__)


async def serve(settings: Settings, stopping: asyncio.Event, hint: StartHint = no_hint) -> int:
    """Serve until `stopping` is set; the exit status."""
    try:
        config = trace_config.parse(settings.trace_config)
        tracing = start_tracing(config, settings.id, VERSION)
    except CannotTrace as error:
        _log.error("%s", error)
        return 1
    return await Gateway(settings, stopping, tracing, hint).run()


class Gateway:
    """One server, from its first open port until `stopping` is set and everything has ended."""

    def __init__(
        self,
        settings: Settings,
        stopping: asyncio.Event,
        tracing: Tracing,
        hint: StartHint = no_hint,
    ) -> None:
        self._settings = settings
        self._hint = hint
        self._stopping = stopping
        self._tracing = tracing
        self._lifecycle = Lifecycle(starting=True, fetching=_must_fetch(settings))
        self._lag = LoopLag()
        sockets = socket_folder(settings.state_dir)
        self._checker = confined_checker(settings, sockets)
        close_folder(settings.state_dir)
        desired = disk.read(settings.state_dir)
        in_force = disk.read_in_force(settings.state_dir)
        self._repository = _repository(settings, desired)
        self._confiner = Confiner(settings, sockets, visible_gpus())
        self._custom = CustomMetrics()
        loader = loader_of(
            settings, self._checker, self._confiner, self._custom, lambda: self._dataplane
        )
        self._fleet = Fleet(loader, self._repository, settings, self._models_changed)
        shared = _shared_memory(settings)
        authorizer = Authorizer(required=settings.inference_auth == "token")
        self._dataplane = DataPlane(
            self._fleet, settings.id, VERSION, shared, authorizer, tracing, self._lifecycle
        )
        copy = disk.DiskCopy(settings.state_dir, desired, in_force)
        self._reconciler = Reconciler(
            desired,
            in_force,
            self._fleet.target_state,
            authorizer.use,
            self._use,
            self._repository.want,
            copy.put,
        )
        self._health = HealthMonitor(
            self._fleet.served, self._fleet.rows, bounds_of(settings), kept.read(settings.state_dir)
        )
        self._checks = HealthChecks(self._health, settings.state_dir, self._judged)
        self._backlog = SeriesBacklog()
        self._drift = DriftWindows(
            state_paths.server_id(settings.state_dir) if settings.allow_admin else "",
            self._dataplane.drift,
            settings.drift_window_secs,
            self._fleet.served,
        )
        self._control = self._control_client(copy) if settings.allow_admin else None
        self._series = self._series_windows()
        self._listeners = Listeners()
        self._following: asyncio.Task[None] | None = None
        self._recording: asyncio.Task[None] | None = None
        self._counting: asyncio.Task[None] | None = None

    def _use(self, desired: DesiredState) -> None:
        """Routes, and what is counted of drift, from now on."""
        self._dataplane.routing.use(desired)
        self._dataplane.drift.use(desired.drift)

    def _control_client(self, copy: disk.DiskCopy) -> DesiredStateClient:
        self._dataplane.routing.feedback.open()
        return DesiredStateClient(
            self._settings,
            self._reconciler.want,
            copy,
            self._look,
            self._counted,
            self._answer,
            self._stored,
        )

    def _series_windows(self) -> SeriesWindows:
        arms = self._dataplane.routing.windows.rows
        collector = SeriesCollector(self._fleet.served, arms, self._lag.take_us)
        closed = IdleTrim(self._checks.close).close
        if self._control is None:
            return SeriesWindows("", collector, closed)
        state_dir, changed = self._settings.state_dir, self._control.link.count
        server, spool = state_paths.server_id(state_dir), WindowSpool(state_dir)
        return SeriesWindows(server, collector, closed, self._backlog, changed, spool)

    async def run(self) -> int:
        """Serve; the exit status."""
        try:
            self._reconciler.start()
            _log.info("%s", self._confiner.report)
            self._confiner.adopt_orphans()
            await self._listeners.open(
                self._dataplane,
                self._lag,
                self._settings,
                self._health.rows,
                self._drift.found,
                self._custom,
            )
            return await self._serve()
        except (CannotListen, RepositoryError) as error:
            _log.error("%s", error)  # the reason is all there is to tell; no traceback
            return 1
        finally:
            await self._end()

    def _models_changed(self) -> None:
        """That models leave because the server ends changes nothing for the next start."""
        if not self._lifecycle.stopping:
            self._reconciler.models_changed()
            self._judged()

    def _judged(self) -> None:
        if self._control is not None:
            self._control.link.report()

    def _look(self) -> FleetStatus:
        fleet = self._fleet
        pending, revision = self._reconciler.pending, self._reconciler.desired.revision
        rows = self._health.rows(time.time())
        return FleetStatus(rows, fleet.settled, fleet.folders(), pending, revision)

    def _counted(
        self, server: str, everything: bool
    ) -> Iterator[ArmReports | Exposures | FeedbackRows | SeriesWindow | DriftWindow]:
        """Messages for the link; each has been sent when the next one is asked for."""
        routing = self._dataplane.routing
        boot, assignments = (
            routing.windows.boot,
            routing.assignments.by_rollout() if everything else None,
        )
        for arms in routing.windows.snapshot(everything):
            yield ArmReports(server, boot, arms, assignments)
            assignments = None
        yield from routing.exposures.messages()
        yield from routing.feedback.messages()
        yield from self._backlog.messages(everything)
        yield from self._drift.messages(everything)

    def _stored(self, message: SeriesStored | DriftStored | DriftScores) -> None:
        if isinstance(message, SeriesStored):
            self._backlog.stored(message.at, message.boot)
        else:
            self._drift.on_message(message)

    def _answer(self, query: Query) -> QueryAnswer:
        """What the control process asks for: what runs here, of sampled requests, of the log."""
        match query:
            case RunningQuery() | CrashQuery() | LoadedQuery() | ResidencyQuery():
                return answer_of_fleet(query, self._fleet)
            case LogQuery():
                return RECENT.answer(query)
            case RequestsQuery():
                return self._dataplane.history.answer(query)
            case _:
                return self._dataplane.samples.answer(query)

    async def _serve(self) -> int:
        failed = await self._load()
        self._lifecycle.finish_starting()
        self._models_changed()  # what has not come by now is not there
        if failed is None:
            return 0
        with suppress(OSError):  # a file on a full disk keeps no server from starting
            addresses = self._listeners.addresses
            sys.stdout.write(banner(self._fleet.rows(), addresses) + self._hint(addresses))
            sys.stdout.flush()
        if failed and self._settings.exit_on_error:
            names = ", ".join(sorted({row.name for row in failed}))
            _log.error("failed to load %s; exiting because of --exit-on-error", names)
            return 1
        await self._fetch()
        quiet_collector()
        self._lag.restart()
        await self._stopping.wait()
        return 0

    async def _fetch(self) -> None:
        """Be ready once the current desired state is loaded, or after the time for it."""
        control, limit = self._control, self._settings.initial_fetch_timeout_secs
        if control is None or not self._lifecycle.fetching:
            return
        _log.info("not ready yet: waiting up to %g s for the current desired state", limit)
        fetching = asyncio.create_task(control.fetched())
        stopping = asyncio.create_task(self._stopping.wait())
        await asyncio.wait([fetching, stopping], timeout=limit, return_when=asyncio.FIRST_COMPLETED)
        if fetching.done():
            _log.info(
                "ready: desired state %d received and loaded", self._reconciler.desired.revision
            )
        elif not self._stopping.is_set():
            _log.warning(
                "ready without the current desired state after %g s "
                "(--initial-fetch-timeout-secs): %s; revision %d is served meanwhile",
                limit,
                "it is still loading" if control.has_fetched else "none was received",
                self._reconciler.desired.revision,
            )
        fetching.cancel()
        stopping.cancel()
        self._lifecycle.finish_fetching()

    async def _load(self) -> list[VersionRow] | None:
        """The initial load, already following changes; None when a signal came first."""
        snapshot = await asyncio.to_thread(self._repository.snapshot)
        loading = asyncio.create_task(self._fleet.start(snapshot))
        self._following = asyncio.create_task(self._follow())
        self._following.add_done_callback(_report)
        self._followed(snapshot)
        stopping = asyncio.create_task(self._stopping.wait())
        either = [loading, stopping]
        alone_s = 0.0 if self._lifecycle.fetching else HEAD_START_S
        await asyncio.wait(either, timeout=alone_s, return_when=asyncio.FIRST_COMPLETED)
        if self._control is not None and not self._stopping.is_set():
            self._control.start()
        self._recording = asyncio.create_task(self._series.run())
        self._recording.add_done_callback(_report)
        self._counting = asyncio.create_task(self._drift.run())
        self._counting.add_done_callback(_report)
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if not loading.done():
            loading.cancel()
            return None
        return loading.result()

    async def _follow(self) -> None:
        async for snapshot in self._repository.changes():
            self._lag.wake()
            self._fleet.follow(snapshot)
            self._followed(snapshot)

    def _followed(self, snapshot: Snapshot) -> None:
        if self._control is not None:
            self._control.followed(snapshot)

    async def _end(self) -> None:
        """Not ready at once; then the listeners, the models, and what served them."""
        self._lifecycle.begin_stopping()
        deadline = ExitDeadline(self._settings.exit_timeout_secs, self._fleet.unfinished)
        draining = draining_secs(self._settings.exit_timeout_secs)
        until_ns = time.monotonic_ns() + int(draining * 1e9)
        _log.info("stopping: draining requests for up to %g s", draining)
        await self._end_series()
        ending = asyncio.create_task(self._control.stop()) if self._control is not None else None
        self._repository.close()
        if self._following is not None:
            await asyncio.wait([self._following])
        await self._fleet.drain_sequences(until_ns)  # whose next requests have yet to come in
        answering = asyncio.create_task(self._listeners.stop(until_ns + ANSWER_NS))
        await asyncio.wait([answering], timeout=max(0.0, (until_ns - time.monotonic_ns()) / 1e9))
        await self._fleet.close(until_ns)  # ends what still executes; its clients are told so
        await answering
        if not await asyncio.to_thread(self._tracing.close):
            _log.warning("some traces could not be written before the exit")
        await self._listeners.stop_metrics()
        await self._checker.close()
        await asyncio.to_thread(self._confiner.close)
        if ending is not None:
            await ending
        self._lag.stop()
        deadline.cancel()

    async def _end_series(self) -> None:
        if self._recording is None or self._counting is None:
            return
        self._recording.cancel()
        self._counting.cancel()
        await asyncio.wait([self._recording, self._counting])
        await self._series.end()
        await self._checks.keep()


def _shared_memory(settings: Settings) -> SharedMemory:
    if not settings.allow_client_shm:
        return DISALLOWED
    return SharedMemory(True, settings.client_shm_max_tensor_size, cuda.find())


def _repository(settings: Settings, desired: DesiredState) -> DesiredRepository:
    folders = WatchedRepository(
        settings.model_repository,
        settings.repository_poll_secs,
        config_name=settings.model_config_name,
        allow_empty=settings.allow_empty_repository,
        allow_missing=settings.repository_may_be_missing,
    )
    return DesiredRepository(
        folders,
        SnapshotStore(settings.store_folder / SNAPSHOTS),
        desired,
        settings.model_control_mode != "none" and settings.repository_poll_secs > 0,
    )


def _must_fetch(settings: Settings) -> bool:
    """A database of our own that is yet to be made desires nothing."""
    if not settings.allow_admin or not settings.initial_fetch_timeout_secs:
        return False
    return bool(settings.database) or (settings.state_dir / OWN_DATABASE).exists()


def _report(task: "asyncio.Task[None]") -> None:
    """A pump that ended by an error has nobody to raise it to."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.critical(
            "changes in the repository are no longer followed. This is a bug.", exc_info=error
        )

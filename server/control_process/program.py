"""The composition root of the control process: what it is made of, started and ended in order."""

import asyncio
import logging
import os
import secrets
import sys
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, suppress
from functools import partial
from typing import IO

from control import servers, state_paths
from control.access.invitations import first_link_code
from control.access.peer import PeerProtocol
from control.access.rate_limits import LoginThrottle, RateLimiter
from control.api.app import admin_app
from control.api.resources.repositories import limits_of
from control.authentication.forwarded import behind_proxies, networks
from control.desired import DesiredState
from control.drift.points import DriftScores
from control.errors import ControlError, DatabaseDamaged, DatabaseGone, Invalid
from control.events import history
from control.events.event_notifier import EventNotifier
from control.experiments.stamp import key_of
from control.gateways.link import LinkServer
from control.gateways.messages import ArmReports, LoadReport
from control.gateways.peers import PeerGateways, channel_of
from control.git.http import GitApp
from control.git.push.examine import Examiner
from control.git.push.pre_receive import PreReceiveHook
from control.git.push.push_keys import PushKeys
from control.imports.importer import Importer
from control.loops import housekeeping
from control.loops.deployer import Deployer
from control.loops.desired_state_feed import DesiredStateFeed
from control.loops.drift import DriftPump
from control.loops.experiment_recorder import ExperimentRecorder
from control.loops.load_recorder import LoadRecorder
from control.loops.notifications import NotificationPump
from control.loops.rollouts import RolloutController
from control.loops.series_recorder import SeriesRecorder
from control.notifications.sender import WebhookSender
from control.publishing.publisher import JobPublisher
from control.series.cache import SeriesCache
from control.services import ControlServices
from control.sql import store
from control.sql.channels import ServerChannels
from control.sql.database import COMMITTED, EVENT, SYSTEM, Database
from control.sql.migrate import migrate
from repository.git import bare
from repository.git.errors import GitError
from repository.git.hooks.hook import HookRequest
from repository.git.hooks.listener import HookListener, Say
from server import VERSION
from server.control_process.admin_listener import AdminListener, stop
from server.control_process.background import running
from server.control_process.console import console
from server.control_process.facts import server_facts
from server.control_process.gateway_calls import HttpGatewayClient
from server.control_process.job_pumps import JobPumps
from server.control_process.permissions import close_state
from server.control_process.store_ownership import CannotControl, check_database_file, check_store
from server.control_process.store_start import prepare_store
from server.control_process.version_checks import CheckerProcesses
from server.control_process.version_makers import version_makers
from server.fleet.confine import confined_checker
from server.http1.connection import ConnectionLimits, Http1Connection
from server.http1.listener import start
from server.listen_address import ListenAddress
from server.logs.recent import RECENT
from server.routing.explain import explain
from server.settings.listeners import UNIX
from server.settings.table import Settings

ASK_AGAIN_S = 2.0
"""Between two tries to reach a database that does not answer at start."""

FOLLOW_S = 30.0
"""How long a push may keep its pusher waiting for the models to be served."""

_log = logging.getLogger(__name__)


class ControlServer:
    """One control process, until `stopping` is set."""

    def __init__(self, settings: Settings, server: str, stopping: asyncio.Event) -> None:
        self._settings = settings
        self._server = server
        self._stopping = stopping
        self._boot = secrets.token_hex(8)
        self._store = settings.store_folder
        self._sockets = state_paths.sockets(settings.state_dir)
        self._keys = PushKeys()
        self._database: Database
        self._deployer: Deployer
        self._importer: Importer
        self._publisher: JobPublisher
        self._feed: DesiredStateFeed
        self._recorder: LoadRecorder
        self._link: LinkServer
        self._peers: PeerGateways
        self._channels: ServerChannels
        self._revision = 0

    async def run(self) -> None:
        """Raises CannotControl."""
        await asyncio.to_thread(close_state, self._settings)
        async with AsyncExitStack() as stack:
            self._database = self._open()
            stack.callback(self._database.close)
            if not await self._ready():
                return
            try:
                await self._serve(stack)
            except (OSError, GitError) as error:
                raise CannotControl(f"the control process cannot start: {error}") from error

    def _open(self) -> Database:
        check_database_file(self._settings)
        try:
            return Database(self._settings.database_url)
        except Invalid as error:
            source = self._settings.source("database")
            raise CannotControl(f"{source}: {error}") from error

    async def _ready(self) -> bool:
        """Wait for the database and bring its tables up; False when told to stop meanwhile."""
        logged = False
        while not self._stopping.is_set():
            try:
                await asyncio.to_thread(migrate, self._database)
                await asyncio.to_thread(self._register)
            except DatabaseDamaged as error:
                raise CannotControl(str(error)) from error
            except DatabaseGone as error:
                if not logged:
                    _log.error("%s; retrying every %g s", error, ASK_AGAIN_S)
                logged = True
                with suppress(TimeoutError):
                    async with asyncio.timeout(ASK_AGAIN_S):
                        await self._stopping.wait()
            else:
                return True
        return False

    def _register(self) -> None:
        """Tell the database of this server, and hold the store against it; blocks."""
        self._database.boot = self._boot
        with self._database.change(SYSTEM) as tx:
            store_id = store.store_id(tx)
        check_store(store_id, self._settings)
        with self._database.change(SYSTEM) as tx:
            servers.register(tx, self._server, self._boot, VERSION, self._url(0))
            self._secret = store.secret(tx)
            self._code = first_link_code(tx)

    async def _serve(self, stack: AsyncExitStack) -> None:
        commits = EventNotifier(self._last_event)
        stack.push_async_callback(commits.close)
        owned = self._database, self._store, self._server
        for view in await asyncio.to_thread(prepare_store, *owned):
            await bare.create(self._store, view.name, limits_of(view))
        checker = confined_checker(self._settings, self._sockets)
        stack.push_async_callback(checker.close)
        checks = CheckerProcesses(checker)
        examiner = Examiner(self._database, self._store, checks, self._settings.model_repository)
        self._feed = DesiredStateFeed(self._database, self._idle_s)
        self._recorder = LoadRecorder(self._database)
        self._deployer = self._make_deployer(examiner)
        self._importer, self._publisher = version_makers(
            self._settings, self._database, checks, self._boot, self._feed.wake, self._idle_s
        )
        self._deciding = PreReceiveHook(self._database, self._store, examiner, self._follow)
        own = (self._database, self._server, self._boot)
        self._rollouts = RolloutController(*own, self._idle_s)
        trials = ExperimentRecorder(*own, key_of(self._secret), self._idle_s)
        series = SeriesRecorder(self._database, self._server)
        self._webhooks = WebhookSender(self._settings.notification_allow)
        notifications = NotificationPump(
            self._database, self._boot, self._webhooks,
            lambda: self._url(self._listener.port), self._idle_s,
        )  # fmt: skip
        drift = DriftPump(*own, self._tell_scores, self._idle_s)
        jobs = JobPumps(self._settings, self._server, self._database, self._idle_s)
        makers = (self._deployer, self._importer, self._publisher)
        told: Sequence[Callable[..., None]] = [
            one.committed
            for one in (commits, *makers, self._rollouts, trials, notifications, drift, jobs)
        ]
        for committed in (*told, self._feed.committed):
            self._database.on_commit(committed)
        await self._open_link(stack, trials, series, drift)
        self._channels = self._open_channels(stack, told)
        await self._open_hooks(stack)
        services = self._services(commits, series.write_held)
        await self._open_listeners(stack, services)
        await stack.enter_async_context(
            running(
                self._listener.run(),
                self._feed.run(),
                self._deployer.run(),
                self._recorder.run(),
                self._rollouts.run(),
                trials.run(),
                series.run(),
                notifications.run(),
                drift.run(),
                jobs.run(),
                self._importer.run(),
                self._publisher.run(),
                self._channels.run(),
                housekeeping.run(services, self._boot, self._keys.repositories),
            )
        )
        await self._stopping.wait()

    async def _open_link(
        self,
        stack: AsyncExitStack,
        trials: ExperimentRecorder,
        series: SeriesRecorder,
        drift: DriftPump,
    ) -> None:
        """Listen to gateways: desired state goes to them, and what they count to its recorders."""

        async def counted(reports: ArmReports) -> None:
            await self._rollouts.on_arm_reports(reports)
            await trials.counted(reports)

        path, receive = self._sockets / state_paths.LINK, self._receive
        self._link = LinkServer(path, receive, counted, trials.record, series.record, drift.record)
        self._feed.follow(self._link.hand)
        self._feed.follow(self._look_again)
        await self._link.open()
        stack.push_async_callback(self._link.close)

    def _make_deployer(self, examiner: Examiner) -> Deployer:
        return Deployer(
            self._database,
            self._store,
            examiner,
            self._boot,
            self._feed.wake,
            self._keys.underway,
            self._idle_s,
        )

    async def _open_hooks(self, stack: AsyncExitStack) -> None:
        hooks = HookListener(self._sockets / state_paths.HOOK, self._answer)
        await hooks.start()
        stack.push_async_callback(hooks.close)

    def _open_channels(
        self, stack: AsyncExitStack, told: Sequence[Callable[..., None]]
    ) -> ServerChannels:
        """To the other servers of the database; `told` of what they commit."""
        own = partial(self._link.ask, self._server)
        self._peers = PeerGateways(self._database, self._server, self._boot, own)
        stack.push_async_callback(self._peers.close)

        def committed(said: str) -> None:
            for tell in told:
                tell()
            if said != EVENT:
                self._feed.wake()

        receivers = {channel_of(self._boot): self._peers.receive, COMMITTED: committed}
        return ServerChannels(self._database, receivers)

    def _idle_s(self, usual_s: float) -> float:
        """How long a pump without work rests: all that is committed here wakes it."""
        return self._channels.idle_s(usual_s)

    def _services(self, commits: EventNotifier, write_held: Callable[[], None]) -> ControlServices:
        loop = asyncio.get_running_loop()

        def deployable() -> None:
            loop.call_soon_threadsafe(self._deployer.ring)
            loop.call_soon_threadsafe(self._importer.ring)

        return ControlServices(
            database=self._database,
            commits=commits,
            facts=server_facts(self._settings, self._server),
            rates=RateLimiter(),
            failures=LoginThrottle(),
            archive=self._archive,
            explain=explain,
            url=lambda: self._url(self._listener.port),
            deployable=deployable,
            jobs_due=lambda: loop.call_soon_threadsafe(self._publisher.ring),
            ask_gateway=partial(self._link.ask, self._server),
            ask_servers=self._peers.ask,
            own_lines=RECENT.answer,
            webhooks=self._webhooks,
            series=SeriesCache(write_held=write_held),
        )

    async def _open_listeners(self, stack: AsyncExitStack, services: ControlServices) -> None:
        git = GitApp(services, self._keys, self._secret, self._sockets / state_paths.HOOK)
        pages = console(services, HttpGatewayClient(self._settings))
        settings = self._settings
        proxies = networks(settings.admin_trusted_proxies or settings.trusted_proxies)
        app = behind_proxies(admin_app(services, pages, git), proxies)
        wire = ConnectionLimits(chunks=2**31)
        over_tcp = type("AdminConnection", (Http1Connection,), {"wire": wire})
        over_unix = type("LocalConnection", (PeerProtocol, Http1Connection), {"wire": wire})
        address, port = self._settings.admin_address, self._settings.admin_port
        local = self._sockets / state_paths.API
        self._listener = AdminListener(app, ListenAddress(address, port), over_tcp, self._greet)
        stack.push_async_callback(self._listener.stop)
        await self._listener.open()
        there = await start(app, ListenAddress(f"{UNIX}{local}", 0), over_unix)
        stack.push_async_callback(stop, there)
        os.chmod(local, 0o600)

    # what comes in

    async def _answer(self, request: HookRequest, say: Say) -> bool:
        pushing = self._keys.find(request.key)
        if pushing is None:
            say("this push is not known here any more; push again")
            return False
        if request.hook == "pre-receive":
            return await self._deciding.decide(pushing, request, say)
        return await self._deciding.accepted(pushing, request, say)

    async def _follow(self, push_id: str, say: Say) -> None:
        """Let the pusher see how the deployment ends."""
        try:
            view = await self._deployer.watch(push_id, FOLLOW_S)
        except ControlError as error:
            say(f"accepted; its outcome cannot be read now: {error}")
            return
        changed = ", ".join(sorted(view.models)) or "nothing"
        if view.state == "served":
            say(f"served: {changed} (push {view.id})")
        elif view.finished_at is None:
            say(f"still loading: {changed}; see modelyard push show {view.id}")
        else:
            say(f"{view.state}: {view.reason} (push {view.id})")

    async def _receive(self, report: LoadReport) -> None:
        if report.server == self._server:
            self._deployer.on_load_report(report)
            self._importer.on_load_report(report)
        self._recorder.on_load_report(report)

    def _tell_scores(self, found: DriftScores) -> None:
        self._link.tell_scores(found)

    def _look_again(self, _: DesiredState) -> None:
        self._deployer.ring()
        self._importer.ring()

    def _last_event(self) -> int:
        with self._database.reading() as session:
            return history.last_event(session)

    def _archive(self, out: IO[bytes]) -> None:
        from control.backup.files import archive

        archive(self._database, self._settings.state_dir, self._store, out)

    # what a person is told

    def _url(self, port: int) -> str:
        settings = self._settings
        if settings.public_url:
            return settings.public_url.rstrip("/")
        address = settings.admin_address
        shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(address, address)
        return f"http://{shown}:{port or settings.admin_port}"

    def _greet(self) -> None:
        url = self._url(self._listener.port)
        text = f"admin    {url}\n"
        if self._code is not None:
            text += f"first administrator (once, within a day): {url}/welcome#{self._code}\n"
        with suppress(OSError):  # a file on a full disk keeps no server from starting
            sys.stdout.write(text)
            sys.stdout.flush()

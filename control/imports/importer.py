"""The pump that brings imports into service: fetched two at a time, deployed one at a time.

What is to be done stands in the rows (`control.import_states`); each step is a transaction under
the deployer's lease, and every step may be repeated. So a crash needs no repair but to go on.
"""

import asyncio
import logging
import os
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from sqlalchemy import select

from control import crash
from control.errors import Conflict, ControlError, DatabaseGone, LostLease
from control.gateways.messages import LoadReport
from control.git.push.deployment_status import judge
from control.import_states import ImportState
from control.imports import service as imports
from control.imports.fetch_job import WHOLE
from control.imports.fetch_messages import FetchCommand, FetchRefused, FetchSucceeded
from control.imports.fetching import FetcherDied, fetching
from control.imports.sealing import SETTINGS, ImportSealer, SealedImport
from control.loops.deployer import BEAT_S, LEASE, LEASE_S, LOAD_S
from control.loops.wake_event import IdleSeconds, WakeEvent, as_usual
from control.sql import leases
from control.sql.database import Actor, Database, Fence
from control.tables import Counter
from control.views import ImportView
from repository.errors import RepositoryError
from repository.files.durable import delete, make_folders
from repository.sources.limits import FetchLimits
from repository.sources.progress import Progress

IMPORTS = "imports"
"""In the store: a folder per unfinished import."""

LIMITS = FetchLimits(SETTINGS.budgets.max_lfs_bytes, SETTINGS.budgets.max_files)

AT_ONCE = 2
TELL_S = 1.0
"""Between two reports of an import's progress."""

VERIFY_S = 3600.0
"""How long the process that fetches may take beyond its own limit, to read what lies there."""

MOST_DEATHS, PAUSE_S = 5, 2.0
"""How often the process that fetches may die before an import is given up, and what is waited."""

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ImportRules:
    """`allowed`: prefixes of URLs from the settings. `folders`: model repositories, whose names
    cannot be imported."""

    allowed: tuple[str, ...] = ()
    folders: Sequence[Path] = ()
    limits: FetchLimits = LIMITS


class Importer:
    """On the loop. `notify` is called once new desired state may be read."""

    def __init__(
        self,
        database: Database,
        store: Path,
        sealer: ImportSealer,
        terms: ImportRules,
        boot: str,
        notify: Callable[[], None],
        idle_s: IdleSeconds = as_usual,
    ) -> None:
        self._database = database
        self._folder = store / IMPORTS
        self._sealer = sealer
        self._terms = terms
        self._boot = boot
        self._notify = notify
        self._news = WakeEvent(idle_s)
        self.committed = self._news.committed
        self._loads: LoadReport | None = None
        self._running: dict[str, asyncio.Task[None]] = {}
        self._due: dict[str, tuple[int, float]] = {}  # import → revision that has it, give up at
        self._fence: Fence | None = None

    def ring(self) -> None:
        """There may be something to do."""
        self._news.ring()

    def on_load_report(self, loads: LoadReport) -> None:
        """The gateway has said what it loads."""
        self._loads = loads
        self._news.ring()

    async def run(self) -> None:
        """Until cancelled; what is being fetched then goes on with the next start."""
        try:
            while True:
                rest = self._news.rest
                try:
                    if await self._is_idle():
                        rest = self._news.rest_idle
                    else:
                        await self._turn()
                except (ControlError, OSError) as error:
                    level = logging.DEBUG if isinstance(error, DatabaseGone) else logging.WARNING
                    _log.log(level, "imports are blocked: %s", error)
                await rest(BEAT_S)
        finally:
            await self._stop(*self._running)

    async def _is_idle(self) -> bool:
        """Whether no import is unfinished and none has left anything: the lease is not needed."""
        if self._running:
            return False
        unfinished = bool(await asyncio.to_thread(self._unfinished))
        return not unfinished and not await asyncio.to_thread(self._folders)

    async def _turn(self) -> None:
        fence = await asyncio.to_thread(leases.take, self._database, LEASE, self._boot, LEASE_S)
        if fence != self._fence:
            await self._stop(*self._running)
            self._fence = fence
        if fence is None:
            return
        waiting = {view.id: view for view in await asyncio.to_thread(self._unfinished)}
        await self._stop(*(self._running.keys() - waiting.keys()))
        await asyncio.to_thread(self._sweep, waiting.keys() | self._running.keys())
        for view in waiting.values():
            if view.state == ImportState.DEPLOYED:
                await self._judge(view, fence)
            elif view.id not in self._running and len(self._running) < AT_ONCE:
                self._running[view.id] = task = asyncio.create_task(self._import(view, fence))
                task.add_done_callback(partial(self._ended, view.id))

    def _ended(self, import_id: str, _: "asyncio.Task[None]") -> None:
        self._running.pop(import_id, None)
        self._news.ring()

    async def _stop(self, *import_ids: str) -> None:
        """End what is running; what has arrived stays."""
        tasks = [self._running[one] for one in import_ids if one in self._running]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _sweep(self, ids: set[str]) -> None:
        """Remove the folders of imports that have ended; blocks."""
        for name in self._folders():
            if name not in ids:
                delete(self._folder / name)

    def _folders(self) -> list[str]:
        """Of imports, by id; blocks."""
        make_folders(self._folder)
        return os.listdir(self._folder)

    # one import

    async def _import(self, view: ImportView, fence: Fence) -> None:
        """Bring it up to the state deployed; or say why not."""
        try:
            await self._deployed(view, fence)
        except (LostLease, DatabaseGone) as error:
            _log.debug("import %s is blocked: %s", view.id, error)
            await asyncio.sleep(BEAT_S)
        except (RepositoryError, ControlError, OSError) as error:
            _log.warning("import %s of %s from %s: %s", view.id, view.model, view.url, error)
            await self._finish(view, ImportState.FAILED, str(error), fence)
        except Exception:  # noqa: BLE001 - one import must not keep the others from going on
            _log.exception("import %s of %s failed. This is a bug.", view.id, view.model)
            await self._finish(view, ImportState.FAILED, "a bug; see the server's log", fence)

    async def _deployed(self, view: ImportView, fence: Fence) -> None:
        self._check_name(view.model)
        await asyncio.to_thread(self._start, view, fence)
        await self._fetched(view, fence)
        crash.point("import.fetched")
        whole = self._folder / view.id / WHOLE
        async with self._sealer.turn:
            imported = await self._sealer.seal(view.model, view.version, whole)
            crash.point("import.snapshot_written")
            revision = await asyncio.to_thread(self._deploy, view, imported, fence)
        crash.point("import.deployed")
        self._due[view.id] = (revision, time.monotonic() + LOAD_S)
        self._notify()

    def _check_name(self, model: str) -> None:
        for folder in self._terms.folders:
            if (folder / model).is_dir():
                raise Conflict(
                    f"the model '{model}' lies in the model repository folder '{folder.name}'; "
                    "remove it there, or import under another name"
                )

    async def _fetched(self, view: ImportView, fence: Fence) -> None:
        """All of it, in the folder WHOLE, however often the process that fetches must be begun."""
        folder = self._folder / view.id
        await asyncio.to_thread(make_folders, folder)
        url = await asyncio.to_thread(self._url, view.id)
        command = FetchCommand(
            url,
            self._terms.allowed,
            str(folder),
            view.expected_digest,
            self._terms.limits,
        )
        deaths = 0
        while True:
            try:
                await self._fetch(view, command, fence)
            except FetcherDied as error:
                _log.warning("import %s of %s: %s", view.id, view.model, error)
                deaths += 1
                if deaths == MOST_DEATHS:
                    raise
                await asyncio.sleep(PAUSE_S)
            else:
                return

    async def _fetch(self, view: ImportView, command: FetchCommand, fence: Fence) -> None:
        """One process's work, to its end. Raises FetcherDied, RepositoryError, ControlError."""
        seconds = command.limits.total_s + VERIFY_S
        try:
            async with asyncio.timeout(seconds):
                await self._follow(view, command, fence)
        except TimeoutError as error:
            raise RepositoryError(f"'{view.url}' was not there within {seconds:g} s") from error

    async def _follow(self, view: ImportView, command: FetchCommand, fence: Fence) -> None:
        latest: Progress | None = None
        recorded_at = 0.0
        async with fetching(command) as reports:
            async for report in reports:
                if isinstance(report, FetchRefused):
                    raise RepositoryError(report.reason)
                if isinstance(report, FetchSucceeded):
                    await asyncio.to_thread(self._check, view, report.digest, latest, fence)
                    return
                latest = report.progress
                if time.monotonic() - recorded_at >= TELL_S:
                    recorded_at = time.monotonic()
                    await asyncio.to_thread(self._progress, view, latest, fence)

    async def _judge(self, view: ImportView, fence: Fence) -> None:
        if view.id not in self._due:
            revision = await asyncio.to_thread(self._revision)
            self._due[view.id] = (revision, time.monotonic() + LOAD_S)
        revision, give_up = self._due[view.id]
        verdict = judge({view.model: view.id}, revision, self._loads)
        if verdict is not None:
            state = ImportState.SERVED if verdict.served else ImportState.FAILED
            await self._finish(view, state, verdict.reason, fence)
        elif time.monotonic() > give_up:
            why = f"no gateway has loaded it within {LOAD_S:g} s"
            await self._finish(view, ImportState.FAILED, why, fence)

    async def _finish(self, view: ImportView, state: ImportState, why: str, fence: Fence) -> None:
        def finish() -> None:
            with self._database.change(_actor(view), fence) as tx:
                imports.finish(tx, view.id, state, why)

        self._due.pop(view.id, None)
        with suppress(Conflict, LostLease, DatabaseGone):  # cancelled meanwhile, or done again
            await asyncio.to_thread(finish)
        self._news.ring()  # its folder can go

    # rows; these block

    def _unfinished(self) -> list[ImportView]:
        with self._database.reading() as session:
            return imports.unfinished(session)

    def _url(self, import_id: str) -> str:
        with self._database.reading() as session:
            return imports.url_of(session, import_id)

    def _start(self, view: ImportView, fence: Fence) -> None:
        with self._database.change(_actor(view), fence) as tx:
            imports.start(tx, view.id)

    def _progress(self, view: ImportView, fetched: Progress, fence: Fence) -> None:
        with suppress(DatabaseGone), self._database.change(_actor(view), fence) as tx:
            imports.progress(tx, view.id, fetched)

    def _check(self, view: ImportView, digest: str, fetched: Progress | None, fence: Fence) -> None:
        with self._database.change(_actor(view), fence) as tx:
            imports.check(tx, view.id, digest, fetched)

    def _deploy(self, view: ImportView, imported: SealedImport, fence: Fence) -> int:
        """The revision of the desired state that has it."""
        with self._database.change(_actor(view), fence) as tx:
            imports.deploy(tx, view.id, imported.sealed, imported.brought)
        return self._revision()

    def _revision(self) -> int:
        with self._database.reading() as session:
            number = session.scalar(select(Counter.value).where(Counter.name == "desired"))
            return int(number or 0)


def _actor(view: ImportView) -> Actor:
    return Actor(view.by, "system")

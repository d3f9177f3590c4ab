"""The pump that makes versions of what jobs have left, one at a time.

A job in the state "publishing" has its result in a folder of the store; sealing it and the
transaction that deploys it may be repeated, so that a crash needs no repair but to go on.
"""

import asyncio
import errno
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from control import crash
from control.deployments.deployment import deployed_snapshots
from control.errors import Conflict, ControlError, DatabaseGone, LostLease
from control.imports.sealing import ImportSealer, SealedImport
from control.jobs import publication
from control.jobs.folders import JOBS, output_folder
from control.jobs.publication import PublishingJob, SealedResult
from control.loops.deployer import BEAT_S, LEASE, LEASE_S
from control.loops.promotions import successions
from control.loops.wake_event import IdleSeconds, WakeEvent, as_usual
from control.pipelines.service import advance
from control.publishing.result_files import named_config, result_plan
from control.sql import leases
from control.sql.database import Actor, Database, Fence
from control.state_paths import SNAPSHOTS
from repository.errors import DiskFull, RepositoryError
from repository.files.durable import delete, make_folders
from repository.folders.walk import CONFIG_NAME
from repository.process.backoff import Backoff
from repository.snapshots.sealed_models import SnapshotStore

FIRST_PAUSE_S, LONGEST_PAUSE_S = 5.0, 300.0
"""Between two tries to publish a result for which there was no room."""

_OF_THE_RESULT = frozenset(
    {errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.ELOOP, errno.ENAMETOOLONG}
)
"""Errors that another try meets again: what should be a file is none."""
MOST_CONFIG_BYTES = 1 << 20
"""Of a result's config; one of hundreds of tensors has some tens of thousands."""

_log = logging.getLogger(__name__)


class JobPublisher:
    """On the loop. `folders`: model repositories, whose names no result may have. `notify` is
    called once new desired state may be read. `sealer` is the importer's as well: snapshots of a
    model are made one after the other."""

    def __init__(
        self,
        database: Database,
        store: Path,
        sealer: ImportSealer,
        folders: Sequence[Path],
        boot: str,
        notify: Callable[[], None],
        idle_s: IdleSeconds = as_usual,
    ) -> None:
        self._database = database
        self._store = store
        self._sealer = sealer
        self._folders = folders
        self._boot = boot
        self._notify = notify
        self._news = WakeEvent(idle_s)
        self.committed = self._news.committed
        self._snapshots = SnapshotStore(store / SNAPSHOTS, most=100)
        self._pauses: dict[str, Backoff] = {}
        self._next_try: dict[str, float] = {}

    def ring(self) -> None:
        """There may be something to do."""
        self._news.ring()

    async def run(self) -> None:
        """Until cancelled."""
        while True:
            rest = self._news.rest
            try:
                if await self._is_idle():
                    rest = self._news.rest_idle
                else:
                    await self._turn()
            except (ControlError, OSError) as error:
                level = logging.DEBUG if isinstance(error, DatabaseGone) else logging.WARNING
                _log.log(level, "publishing results of jobs is blocked: %s", error)
            await rest(BEAT_S)

    async def _is_idle(self) -> bool:
        """Whether no job is unfinished and none has left anything: the lease is not needed."""
        kept, there = await asyncio.to_thread(self._claims)
        return not kept and not there

    async def _turn(self) -> None:
        fence = await asyncio.to_thread(leases.take, self._database, LEASE, self._boot, LEASE_S)
        if fence is None:
            return
        jobs = await asyncio.to_thread(self._waiting)
        self._forget({job.id for job in jobs})
        for job in jobs:
            if job.cancel or time.monotonic() >= self._next_try.get(job.id, 0.0):
                await self._publish(job, fence)
        await asyncio.to_thread(self._sweep)

    def _forget(self, waiting: Collection[str]) -> None:
        for job_id in self._pauses.keys() - waiting:
            del self._pauses[job_id], self._next_try[job_id]

    async def _publish(self, job: PublishingJob, fence: Fence) -> None:
        """Bring it to its end."""
        try:
            await self._published(job, fence)
        except (LostLease, DatabaseGone):
            raise
        except OSError as error:
            await self._settle_fault(job, fence, error)
        except DiskFull as error:
            await self._hold_back(job, fence, str(error))
        except (RepositoryError, ControlError) as error:
            await self._refuse(job, fence, str(error))
        except Exception:  # noqa: BLE001 - one job must not keep the others from going on
            _log.exception("publishing the result of job %s failed. This is a bug.", job.id)
            await self._give_up(job, fence, "a bug; see the server's log")

    async def _settle_fault(self, job: PublishingJob, fence: Fence, error: OSError) -> None:
        """The machine's faults pass; a result of files that cannot be opened stays as it is."""
        if error.errno in _OF_THE_RESULT:
            await self._refuse(job, fence, str(error))
        else:
            await self._hold_back(job, fence, str(error))

    async def _refuse(self, job: PublishingJob, fence: Fence, reason: str) -> None:
        _log.warning("the result of job %s, '%s', is no version: %s", job.id, job.model, reason)
        await self._give_up(job, fence, reason)

    async def _hold_back(self, job: PublishingJob, fence: Fence, reason: str) -> None:
        """Try again later, with the result as it is: the work may have taken hours."""
        backoff = self._pauses.setdefault(job.id, Backoff(FIRST_PAUSE_S, LONGEST_PAUSE_S))
        pause_s = backoff.after(0.0)
        self._next_try[job.id] = time.monotonic() + pause_s
        _log.warning(
            "the result of job %s, '%s', cannot be stored now and is kept: %s; the next try is in "
            "%.0f s",
            job.id,
            job.model,
            reason,
            pause_s,
        )

        def hold_back() -> None:
            with self._database.change(Actor(job.by, "system"), fence) as tx:
                publication.hold_back(tx, job, reason)

        await asyncio.to_thread(hold_back)

    async def _published(self, job: PublishingJob, fence: Fence) -> None:
        output = output_folder(self._store, job.id, job.fence)
        if job.cancel:
            raise Conflict("cancelled")
        await asyncio.to_thread(self._prepare, output, job.model)
        async with self._sealer.turn:
            imported = await self._sealer.seal_planned(job.model, output, result_plan)
            crash.point("job.snapshot_written")
            await asyncio.to_thread(self._deploy, job, imported, fence)
        crash.point("job.published")
        self._notify()

    def _prepare(self, output: Path, model: str) -> None:
        """Raises Conflict, and OSError where the result is not there."""
        if any((folder / model).is_dir() for folder in self._folders):
            raise Conflict(
                f"a model '{model}' has come to lie in a model repository folder; remove it there, "
                "or make the job again with another result_model"
            )
        if not output.is_dir():
            raise Conflict(f"the result is not in the store any more: '{output}' is missing")
        config = output / CONFIG_NAME
        if config.is_file() and not config.is_symlink():
            _replace(config, output.with_suffix(".config"), named_config(_text_of(config), model))

    def _deploy(self, job: PublishingJob, imported: SealedImport, fence: Fence) -> None:
        (number,) = imported.brought
        result = SealedResult(imported.sealed, number, self._stable(job.model, imported))
        with self._database.change(Actor(job.by, "system"), fence) as tx:
            advance(tx, publication.publish(tx, job, result))

    def _stable(self, model: str, imported: SealedImport) -> int | None:
        """The version that answers who names none, where the result would do so from now on."""
        with self._database.reading() as session:
            deployed = deployed_snapshots(session)
        before = {model: deployed[model]} if model in deployed else {}
        for change in successions(self._snapshots, before, {model: imported.sealed.digest}):
            return change.before if change.before != change.after else None
        return None

    async def _give_up(self, job: PublishingJob, fence: Fence, reason: str) -> None:
        def give_up() -> None:
            with self._database.change(Actor(job.by, "system"), fence) as tx:
                publication.give_up(tx, job, reason)

        with suppress(Conflict):  # it has ended meanwhile
            await asyncio.to_thread(give_up)

    # these block

    def _waiting(self) -> list[PublishingJob]:
        with self._database.reading() as session:
            return publication.publishing(session)

    def _claims(self) -> tuple[Mapping[str, int], Sequence[str]]:
        """The last claims of jobs that have not ended, and the jobs that have folders."""
        folder = self._store / JOBS
        make_folders(folder)
        there = os.listdir(folder)  # before the rows: a new job's folder comes after its row
        with self._database.reading() as session:
            return publication.kept_claims(session), there

    def _sweep(self) -> None:
        """Remove the folders of claims that are over."""
        folder = self._store / JOBS
        kept, there = self._claims()
        for name in there:
            if name not in kept:
                _remove(folder / name)
                continue
            for claim in os.listdir(folder / name):
                if claim != str(kept[name]):
                    _remove(folder / name / claim)


def _replace(path: Path, fresh: Path, text: str) -> None:
    """Whole or not at all: a full disk must not leave half of it. Raises OSError."""
    try:
        fresh.write_text(text)
        fresh.replace(path)
    except OSError:
        fresh.unlink(missing_ok=True)
        raise


def _text_of(config: Path) -> str:
    """Raises Conflict where it cannot be a config, OSError."""
    with config.open("rb") as file:
        content = file.read(MOST_CONFIG_BYTES + 1)
    if len(content) > MOST_CONFIG_BYTES:
        raise Conflict(f"the job has left a {CONFIG_NAME} of more than {MOST_CONFIG_BYTES} bytes")
    try:
        return content.decode()
    except UnicodeDecodeError as error:
        raise Conflict(f"the job has left a {CONFIG_NAME} that is no text: {error}") from error


def _remove(folder: Path) -> None:
    """Or leave it for the next time: the others go on."""
    try:
        delete(folder)
    except OSError as error:
        _log.warning("the folder %s of a job that is over cannot be removed: %s", folder, error)

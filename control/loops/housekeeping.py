"""What the control process does now and then: beats, notes who was there, forgets what is old.

Each job has a loop of its own, so that a long one holds up nobody's heartbeat.
"""

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Collection
from pathlib import Path

from sqlalchemy import select

from control import servers
from control.access import sweep as access
from control.access.last_use import write_uses
from control.deployments import deployment, pushes
from control.drift.windows import USUAL_LIMIT_BYTES as DRIFT_LIMIT_BYTES
from control.drift.windows import forget_windows
from control.errors import DatabaseGone
from control.events import history
from control.experiments.records.feedback import forget_waiting
from control.experiments.records.retention import forget_units
from control.git.garbage_collection import LOOK_S, GitGarbageCollector
from control.jobs.retention import forget_jobs, forget_traffic
from control.notifications.deliveries import forget_deliveries
from control.notifications.mutes import forget_mutes
from control.pipelines.retention import forget_pipelines
from control.rollouts import counts
from control.rollouts.evidence import forget_moments
from control.series.levels import USUAL_LIMIT_BYTES
from control.series.recording import forget_chunks
from control.series.storage import shrink
from control.services import ControlServices
from control.sql.database import SYSTEM, Database
from control.state_paths import SNAPSHOTS
from control.tables import SnapshotRow
from repository.files.owner import alive
from repository.git import bare
from repository.lfs.store import LfsStore
from repository.snapshots import stored

MINUTE_S, HOUR_S = 60.0, 3600.0

FILE_S, PAGES_S = 5.0, 300.0
"""Between two looks at the database's file, and at all its pages."""

PAGES_SHARE = 0.001
"""Of the time, at most, is spent on looking at pages, however large the file is."""

PUSH_S = 2 * HOUR_S
"""Longer than git may be busy with any push, on whichever server."""

_log = logging.getLogger(__name__)


async def run(services: ControlServices, boot: str, pushed: Callable[[], Collection[str]]) -> None:
    """Until cancelled. `pushed`: the repositories that a push is under way to, here."""
    database, store = services.database, services.facts.store
    collector = GitGarbageCollector(store, pushed)

    async def note() -> None:
        await asyncio.to_thread(write_uses, database, *services.uses.take())

    async def clear() -> None:
        limits = services.facts.series_limit, services.facts.drift_limit
        await asyncio.to_thread(sweep, database, store, *limits)
        await asyncio.to_thread(collect_objects, store)

    async with asyncio.TaskGroup() as jobs:
        beat_s = servers.ALONE_BEAT_S if database.is_sqlite else servers.BEAT_S
        jobs.create_task(_every(beat_s, lambda: asyncio.to_thread(_beat, services, boot)))
        jobs.create_task(_every(FILE_S, lambda: asyncio.to_thread(database.check)))
        jobs.create_task(_every(PAGES_S, lambda: _verify(database)))
        jobs.create_task(_every(MINUTE_S, note))
        jobs.create_task(_every(HOUR_S, clear))
        jobs.create_task(_every(LOOK_S, collector.look))


async def _every(seconds: float, job: Callable[[], Awaitable[None]]) -> None:
    """A database or a disk that fails is told of, and tried again the next time."""
    while True:
        await asyncio.sleep(seconds)
        try:
            await job()
        except DatabaseGone as error:
            _log.debug("garbage collection is blocked: %s", error)
        except OSError as error:
            _log.error("garbage collection failed: %s; retrying in %g s", error, seconds)


async def _verify(database: Database) -> None:
    """What is wrong is logged by the one that finds it. Raises DatabaseGone."""
    began = time.monotonic()
    await asyncio.to_thread(database.verify)
    await asyncio.sleep((time.monotonic() - began) / PAGES_SHARE)


def _beat(services: ControlServices, boot: str) -> None:
    server = services.facts.server_id
    with services.database.change(SYSTEM) as tx:
        if not servers.heartbeat(tx, server, boot):
            _log.error(
                "another control process has taken the server id %s; each server needs a state "
                "folder of its own",
                server,
            )


def sweep(
    database: Database,
    store: Path,
    series_limit: int = USUAL_LIMIT_BYTES,
    drift_limit: int = DRIFT_LIMIT_BYTES,
) -> None:
    """Forget what is over, and remove what nobody refers to in the store; blocks.

    Raises DatabaseGone, OSError.
    """
    with database.change(SYSTEM) as tx:
        history.forget_events(tx)
        access.sweep(tx)
        forget_waiting(tx)
        counts.forget(tx)
        forget_moments(tx)
        forget_chunks(tx)
        shrink(tx, series_limit)
        forget_windows(tx, drift_limit)
        forget_deliveries(tx)
        forget_mutes(tx)
        forget_jobs(tx)
        forget_traffic(tx)
        forget_pipelines(tx)
        pushes.forget(tx)
        deployment.forget_snapshots(tx)
    while _forget_units(database):
        pass
    with database.reading() as session:
        digests = set(session.scalars(select(SnapshotRow.digest)))
    for name in stored.sweep(store / SNAPSHOTS, alive, digests, time.time()):
        _log.info("store: removed %s, which nothing refers to", name)
    LfsStore(store).sweep()
    bare.sweep_all(store, PUSH_S)


def collect_objects(store: Path) -> None:
    """Remove objects of Git LFS that no repository and no snapshot has any more; blocks."""
    if freed_bytes := LfsStore(store).collect():
        _log.info("store: removed %d bytes of Git LFS objects nobody refers to", freed_bytes)


def _forget_units(database: Database) -> int:
    with database.change(SYSTEM) as tx:
        return forget_units(tx)

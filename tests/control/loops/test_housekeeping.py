"""The control process's chores: none holds up another, and none is ended by a bad disk."""

import asyncio
from pathlib import Path

import pytest

from control.errors import DatabaseGone
from control.loops import housekeeping
from control.sql.database import Database
from control.state_paths import SNAPSHOTS
from control.tables import SnapshotRow
from repository.lfs.store import LfsStore
from repository.snapshots import stored
from support.control import rows
from support.control_store import build


def test_a_chore_that_takes_long_keeps_no_other_waiting() -> None:
    beats = 0

    async def main() -> None:
        enough, never = asyncio.Event(), asyncio.Event()

        async def beat() -> None:
            nonlocal beats
            beats += 1
            if beats == 3:
                enough.set()

        async with asyncio.timeout(60), asyncio.TaskGroup() as jobs:
            slow = jobs.create_task(housekeeping._every(0.0, never.wait))
            quick = jobs.create_task(housekeeping._every(0.0, beat))
            await enough.wait()
            slow.cancel()
            quick.cancel()

    asyncio.run(main())
    assert beats == 3


@pytest.mark.parametrize("error", [OSError(5, "Input/output error"), DatabaseGone("gone")])
def test_a_chore_that_fails_is_tried_again(error: Exception) -> None:
    tried = 0

    async def main() -> None:
        nonlocal tried
        again = asyncio.Event()

        async def fail() -> None:
            nonlocal tried
            tried += 1
            if tried == 2:
                again.set()
            raise error

        async with asyncio.timeout(60), asyncio.TaskGroup() as jobs:
            failing = jobs.create_task(housekeeping._every(0.0, fail))
            await again.wait()
            failing.cancel()

    asyncio.run(main())
    assert tried == 2


def test_a_sweep_keeps_what_is_deployed(database: Database, tmp_path: Path) -> None:
    home = build(database, tmp_path)
    housekeeping.sweep(home.database, home.store)
    housekeeping.collect_objects(home.store)
    (snapshot,) = rows(database, SnapshotRow)
    assert (home.store / SNAPSHOTS / snapshot.digest).is_dir()


def test_objects_of_a_repository_that_is_gone_are_collected(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home = build(database, tmp_path)
    caplog.set_level("INFO")
    for snapshot in (home.store / SNAPSHOTS).iterdir():
        stored.remove(home.store / SNAPSHOTS, snapshot.name)
    housekeeping.collect_objects(home.store)
    assert "Git LFS" not in caplog.text, "its repository has it still"
    LfsStore(home.store).forget("vision")
    housekeeping.collect_objects(home.store)
    assert "store: removed 7000 bytes of Git LFS objects" in caplog.text
    assert not list((home.store / "lfs/objects").glob("*/*/*"))

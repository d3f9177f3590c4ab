"""The pump of jobs after a time in which the database did not answer."""

import asyncio
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from pathlib import Path

import pytest

from control.clock import utc_now
from control.jobs.claims import claim
from control.loops.job_sweeper import JobSweeper
from control.sql.database import Database
from support.jobs import WORKER, enqueued, shown

WAIT_S = 60.0


@pytest.fixture
def database(migrated_sqlite: Path, tmp_path: Path) -> Iterator[Database]:
    shutil.copy(migrated_sqlite, tmp_path / "modelyard.db")
    opened = Database(f"sqlite:///{tmp_path}/modelyard.db")
    yield opened
    opened.close()


@pytest.mark.slow
def test_a_job_is_not_taken_back_as_soon_as_the_database_answers_again(
    database: Database, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", "control.loops.job_sweeper")
    job = enqueued(database)
    assert claim(database, WORKER, now=utc_now() - timedelta(seconds=60)) is not None

    async def main() -> None:
        looked = asyncio.Event()
        sweeper = JobSweeper(database, ("default",), lambda _: None, lambda _: looked.set())
        with closing(sqlite3.connect(tmp_path / "modelyard.db", isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            running = asyncio.create_task(sweeper.run())
            async with asyncio.timeout(WAIT_S):
                while "jobs are blocked" not in caplog.text:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            other.execute("ROLLBACK")
        sweeper.committed()
        async with asyncio.timeout(WAIT_S):
            await looked.wait()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    asyncio.run(main())
    assert shown(database, job.id).state == "running"

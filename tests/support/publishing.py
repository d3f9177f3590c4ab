"""Results of jobs for tests, and a real publisher over a database and a store."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from control.imports.sealing import ImportSealer
from control.jobs.claims import AttemptDone, claim, finish
from control.jobs.folders import output_folder
from control.jobs.service import JobTerms
from control.jobs.views import JobView
from control.publishing.publisher import JobPublisher
from control.sql.database import Database
from server.control_process.version_checks import CheckerProcesses
from server.fleet.checks.check import Checker
from support.imports import DEADLINE_SECS, onnx_model
from support.jobs import ACCEPTED, WORKER, enqueued, shown

CONFIG = b'name: "digits"\nbackend: "onnxruntime"\n'


@dataclass
class Publishing:
    """A publisher that runs, and the rows and the store that it works on."""

    database: Database
    store: Path
    publisher: JobPublisher

    async def until(self, job_id: str, true: Callable[[JobView], bool]) -> JobView:
        async with asyncio.timeout(DEADLINE_SECS):
            while not true(view := await asyncio.to_thread(shown, self.database, job_id)):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        return view

    async def ended(self, job_id: str) -> JobView:
        return await self.until(job_id, lambda view: view.finished_at is not None)


def worked(
    database: Database, store: Path, result_model: str, files: dict[str, bytes] | None = None
) -> str:
    """A job whose worker has left `files`, a multiplication if None, and finished; its id."""
    job = enqueued(database, terms=JobTerms(result_model=result_model))
    held = claim(database, WORKER, job.id)
    assert held is not None
    usual = {"config.pbtxt": CONFIG, "1/model.onnx": onnx_model(3.0)}
    output = output_folder(store, job.id, held.fence)
    for path, content in (usual if files is None else files).items():
        (output / path).parent.mkdir(parents=True, exist_ok=True)
        (output / path).write_bytes(content)
    finish(database, held, AttemptDone(ACCEPTED))
    return job.id


@asynccontextmanager
async def publishing(
    database: Database, store: Path, folders: tuple[Path, ...] = ()
) -> AsyncIterator[Publishing]:
    """Until the block ends, as the control process does it."""
    checker = Checker()
    sealer = ImportSealer(database, store, CheckerProcesses(checker))
    publisher = JobPublisher(database, store, sealer, folders, "boot1", lambda: None)
    pump = asyncio.create_task(publisher.run())
    try:
        yield Publishing(database, store, publisher)
    finally:
        pump.cancel()
        await asyncio.gather(pump, return_exceptions=True)
        await checker.close()

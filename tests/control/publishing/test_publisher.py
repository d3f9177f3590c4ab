"""What a job has left becomes a version once, whatever happens on the way."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from control.deployments.versions import get_version
from control.jobs import service
from control.jobs.claims import claim
from control.jobs.policy.admission import WorkerIdentity
from control.jobs.views import JobView
from control.routes.service import find_route
from control.sql.database import Database
from control.tables import Model, Version
from support.control import ADA, rows
from support.imports import onnx_model
from support.jobs import ACCEPTED, enqueued, shown
from support.publishing import CONFIG, Publishing, publishing, worked

pytestmark = pytest.mark.anyio


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture
def database(migrated_sqlite: Path, tmp_path: Path) -> Iterator[Database]:
    """One kind is enough here: test_publication.py has the rows on both."""
    shutil.copy(migrated_sqlite, tmp_path / "modelyard.db")
    opened = Database(f"sqlite:///{tmp_path}/modelyard.db")
    yield opened
    opened.close()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "store"


def deployed_files(running: Publishing, model: str) -> dict[str, bytes]:
    (snapshot,) = [
        row.snapshot_digest for row in rows(running.database, Model) if row.name == model
    ]
    folder = running.store / "snapshots" / snapshot / model
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file()
    }


async def test_a_result_becomes_a_version_with_its_lineage_and_report(
    database: Database, store: Path
) -> None:
    job_id = worked(database, store, "digits-int8")
    async with publishing(database, store) as running:
        view = await running.ended(job_id)
        assert (view.state, view.reason) == ("done", "")
        assert (view.result.model, view.result.version) == ("digits-int8", 1)
        files = deployed_files(running, "digits-int8")
        assert files["1/model.onnx"] == onnx_model(3.0)
        assert b'name: "digits-int8"' in files["config.pbtxt"]
        await running.until(job_id, lambda _: not any((store / "jobs").iterdir()))
    with database.reading() as session:
        version = get_version(session, "digits-int8", 1)
        assert service.get_report(session, job_id) == ACCEPTED
    assert version.digest == view.result.digest
    assert (version.provenance.source, version.provenance.pusher) == (f"job:{job_id}", "user:ada")
    assert version.lineage is not None
    assert (version.lineage.job, version.lineage.type) == (job_id, "quantise")
    assert (version.lineage.model, version.lineage.version, version.lineage.digest) == (
        "digits", 1, "b" * 64
    )  # fmt: skip


async def test_the_next_version_of_a_model_gets_no_request_until_somebody_says_so(
    database: Database, store: Path
) -> None:
    async with publishing(database, store) as running:
        await running.ended(worked(database, store, "scaled"))
        with database.reading() as session:
            assert find_route(session, "scaled") is None
        files = {"config.pbtxt": b'backend: "python"', "1/model.onnx": onnx_model(4.0)}
        view = await running.ended(worked(database, store, "scaled", files))
        assert (view.state, view.result.version) == ("done", 2)
        there = deployed_files(running, "scaled")
    assert there["1/model.onnx"] == onnx_model(3.0)
    assert there["2/model.onnx"] == onnx_model(4.0)
    assert b"onnxruntime" in there["config.pbtxt"]
    with database.reading() as session:
        route = find_route(session, "scaled")
    assert route is not None
    assert [(arm.name, arm.version) for arm in route.spec.arms] == [("stable", 1)]


@pytest.mark.parametrize(
    ("files", "words"),
    [
        ({"config.pbtxt": CONFIG}, "no file in the folder '1/'"),
        ({"config.pbtxt": CONFIG, "1/model.onnx": b"no network"}, "model.onnx"),
        ({"config.pbtxt": b"backend: 5 7", "1/model.onnx": onnx_model()}, "config.pbtxt"),
        ({"config.pbtxt": b"\xff\xfe", "1/model.onnx": onnx_model()}, "that is no text"),
        (
            {"config.pbtxt": CONFIG + b" " * (1 << 20), "1/model.onnx": onnx_model()},
            "a config.pbtxt of more than 1048576 bytes",
        ),
        ({"config.pbtxt": b'backend: "python"', "1/model.py": b"import os"}, "model.py"),
    ],
    ids=[
        "no version",
        "a damaged network",
        "a damaged config",
        "a config of bytes",
        "a large config",
        "code",
    ],
)
async def test_what_cannot_be_served_is_no_version_and_says_why(
    database: Database, store: Path, files: dict[str, bytes], words: str
) -> None:
    job_id = worked(database, store, "digits-int8", files)
    async with publishing(database, store) as running:
        view = await running.ended(job_id)
        await running.until(job_id, lambda _: not any((store / "jobs").iterdir()))
    assert view.state == "failed"
    assert words in view.reason
    assert (rows(database, Version), rows(database, Model)) == ([], [])


async def test_a_result_that_is_not_in_the_store_any_more_fails(
    database: Database, store: Path
) -> None:
    job_id = worked(database, store, "digits-int8")
    shutil.rmtree(store / "jobs")
    async with publishing(database, store) as running:
        view = await running.ended(job_id)
    assert view.state == "failed"
    assert "not in the store any more" in view.reason


async def test_a_job_that_is_cancelled_before_it_is_published_makes_no_version(
    database: Database, store: Path
) -> None:
    job_id = worked(database, store, "digits-int8")
    with database.change(ADA) as tx:
        service.cancel(tx, job_id)
    async with publishing(database, store) as running:
        assert (await running.ended(job_id)).state == "cancelled"
    assert rows(database, Version) == []


async def test_a_name_that_has_come_to_lie_in_a_folder_is_refused(
    database: Database, store: Path, tmp_path: Path
) -> None:
    job_id = worked(database, store, "digits-int8")
    (tmp_path / "models" / "digits-int8").mkdir(parents=True)
    async with publishing(database, store, (tmp_path / "models",)) as running:
        view = await running.ended(job_id)
    assert "model repository folder" in view.reason


async def test_folders_of_claims_that_are_over_go_and_that_of_the_last_one_stays(
    database: Database, store: Path
) -> None:
    job = enqueued(database)
    held = claim(database, WorkerIdentity("w", "m"), job.id)
    assert held is not None
    for fence in ("0", str(held.fence)):
        (store / "jobs" / job.id / fence).mkdir(parents=True)
    (store / "jobs" / "forgotten").mkdir()
    async with publishing(database, store) as running:
        await running.until(job.id, lambda _: not (store / "jobs" / "forgotten").exists())
    assert [path.name for path in (store / "jobs" / job.id).iterdir()] == [str(held.fence)]


@pytest.fixture
def full_store(database: Database, store: Path) -> Iterator[str]:
    """A result waits, and the store's file system is full; the job's id."""
    store.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=256k", "tmpfs", str(store)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode:
        pytest.skip("no file system can be mounted here; run as root")
    try:
        job_id = worked(database, store, "digits-int8")
        with pytest.raises(OSError, match="No space"):
            (store / "all").write_bytes(b"x" * (1 << 20))
        yield job_id
    finally:
        subprocess.run(["umount", str(store)], check=True)


async def test_a_full_disk_keeps_the_result_until_there_is_room(
    database: Database, store: Path, full_store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("control.publishing.publisher.FIRST_PAUSE_S", 0.1)
    async with publishing(database, store) as running:
        held = await running.until(full_store, lambda view: bool(view.progress))
        assert held.state == "publishing"
        assert held.progress.startswith("waits to be published: ")
        assert "No space left" in held.progress
        (store / "all").unlink()

        def ends(view: JobView) -> bool:
            running.publisher.ring()
            return view.finished_at is not None

        view = await running.until(full_store, ends)
        assert (view.state, view.progress) == ("done", "")
        config = deployed_files(running, "digits-int8")["config.pbtxt"]
    assert config == CONFIG.replace(b"digits", b"digits-int8")


async def test_a_result_that_is_held_back_can_be_cancelled(
    database: Database, store: Path, full_store: str
) -> None:
    async with publishing(database, store) as running:
        await running.until(full_store, lambda view: bool(view.progress))
        with database.change(ADA) as tx:
            service.cancel(tx, full_store)
        running.publisher.ring()
        assert (await running.ended(full_store)).state == "cancelled"


KILLED = """
import asyncio, sys
from pathlib import Path
from control.sql.database import Database
from support.publishing import publishing

async def main(url, store, job_id):
    async with publishing(Database(url), Path(store)) as running:
        await running.until(job_id, lambda _: False)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.slow
@pytest.mark.parametrize("point", ["job.snapshot_written", "job.published"])
async def test_a_publisher_that_is_killed_is_followed_by_one_that_goes_on(
    database: Database, store: Path, point: str
) -> None:
    job_id = worked(database, store, "digits-int8")
    root = Path(__file__).parents[3]
    process = subprocess.run(  # noqa: ASYNC221 - nothing else is to go on meanwhile
        [sys.executable, "-c", KILLED, database.url, str(store), job_id],
        cwd=root,
        env={"PYTHONPATH": f"{root}:{root}/tests", "MODELYARD_CRASH_AT": point, "PATH": ""},
        timeout=120,
        check=False,
    )
    assert process.returncode == -9
    assert shown(database, job_id).state == ("publishing" if "snapshot" in point else "done")
    async with publishing(database, store) as running:
        view = await running.ended(job_id)
    assert (view.state, view.result.version) == ("done", 1)
    assert len(rows(database, Version)) == 1

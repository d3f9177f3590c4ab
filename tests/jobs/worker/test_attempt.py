"""One attempt at a claimed job, with a real database and a real process."""

import os
import shutil
import sqlite3
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest

from backends.environments.sources import PackageSources
from backends.environments.store import EnvironmentStore
from control.clock import utc_now
from control.jobs import service
from control.jobs.claims import claim
from control.jobs.folders import output_folder
from control.jobs.policy.admission import WorkerIdentity
from control.jobs.policy.leases import LEASE
from control.jobs.specs.optimise import OptimiseSpec
from control.jobs.sweeper import due
from control.jobs.tables import JobOutput
from control.jobs.views import JobView, SourceFolder
from control.sql.database import Actor, Database
from jobs.environments.environments import ToolEnvironments
from jobs.process.program import ROOT
from jobs.worker.attempt import Attempt, WorkerContext
from repository.sandbox.scratch import ScratchFolders
from support.server import write_identity

WAIT_S = 60.0
ADA = Actor("user:ada", "api")


class Scene:
    """A job that is claimed, and the context of the worker that claims it."""

    def __init__(self, database: Database, folder: Path, module: str) -> None:
        self.database, self.folder = database, folder
        write_identity(folder / "models", "digits")
        source = SourceFolder("digits", 1, folder=str(folder / "models" / "digits"))
        with database.change(ADA) as tx:
            self.id = service.enqueue(tx, OptimiseSpec(model="digits"), {"source": source}).id
        found = claim(database, WorkerIdentity("w", "m"))
        assert found is not None
        self.claim = found
        self.scratch = ScratchFolders(folder / "scratch")
        store = EnvironmentStore(folder / "environments", 1 << 30)
        self.context = WorkerContext(
            database=database,
            store=folder / "store",
            scratch=self.scratch,
            environments=ToolEnvironments(store, lambda *_: None, PackageSources(), 10.0),
            sandbox_of=lambda *_: None,
            complete=lambda *_: "name: 'digits'",
            module=module,
            roots=(str(ROOT), str(ROOT / "tests")),
            grace_secs=0.5,
        )
        self.attempt = Attempt(self.context, self.claim)

    def view(self) -> JobView:
        with self.database.reading() as session:
            return service.get_job(session, self.id)

    def run_until(self, condition: Callable[[], bool], then: Callable[[], object]) -> None:
        thread = threading.Thread(target=self.attempt.run)
        thread.start()
        deadline = time.monotonic() + WAIT_S
        while not condition():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        then()
        thread.join(WAIT_S)
        assert not thread.is_alive()

    def is_at_work(self) -> bool:
        return self.view().progress.startswith(("step", "asleep"))

    def result(self) -> Path:
        return output_folder(self.folder / "store", self.id, self.claim.fence)


@pytest.fixture
def sqlite_database(migrated_sqlite: Path, tmp_path: Path) -> Iterator[Database]:
    path = tmp_path / "modelyard.db"
    shutil.copy(migrated_sqlite, path)
    found = Database(f"sqlite:///{path}")
    yield found
    found.close()


@pytest.fixture
def working(sqlite_database: Database, tmp_path: Path) -> Iterator[Scene]:
    """Its tool finishes within a second."""
    yield from _scene(sqlite_database, tmp_path, "support.crash_tool")


@pytest.fixture
def sleeping(sqlite_database: Database, tmp_path: Path) -> Iterator[Scene]:
    """Its tool sleeps for ever, and is deaf to SIGTERM."""
    yield from _scene(sqlite_database, tmp_path, "support.sleeping_tool")


@pytest.fixture
def waiting(sqlite_database: Database, tmp_path: Path) -> Iterator[Scene]:
    """Its tool draws a curve until the file `waiting` in its scratch folder is gone."""
    yield from _scene(sqlite_database, tmp_path, "support.waiting_tool")


def _scene(database: Database, folder: Path, module: str) -> Iterator[Scene]:
    scene = Scene(database, folder, module)
    yield scene
    own = list((folder / "scratch").iterdir())
    assert len(own) <= 1
    assert not [one for shelf in own for one in shelf.iterdir()]
    scene.scratch.close()


def test_finished_work_leaves_its_result_in_the_store(working: Scene) -> None:
    working.attempt.run()
    view = working.view()
    assert (view.state, view.fraction) == ("publishing", 1.0)
    assert view.cost.cpu_s > 0
    assert (working.result() / "config.pbtxt").read_text() == "name: 'digits'"


def test_cancelled_job_ends_with_its_process(sleeping: Scene) -> None:
    def cancel() -> None:
        with sleeping.database.change(ADA) as tx:
            service.cancel(tx, sleeping.id)

    sleeping.run_until(sleeping.is_at_work, cancel)
    assert sleeping.view().state == "cancelled"


def test_claim_is_kept_whatever_goes_wrong_with_writing(
    waiting: Scene, caplog: pytest.LogCaptureFixture
) -> None:
    def set_points(points: bytes) -> None:
        with waiting.database.change(ADA) as tx:
            tx.session.get_one(JobOutput, waiting.id).points = points

    def fail_then_cancel() -> None:
        set_points(b"no JSON")
        deadline = time.monotonic() + WAIT_S
        while "its claim cannot be renewed" not in caplog.text:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        set_points(b"[]")
        with waiting.database.change(ADA) as tx:
            service.cancel(tx, waiting.id)

    waiting.run_until(lambda: bool(files(waiting)), fail_then_cancel)
    assert waiting.view().state == "cancelled"


def test_job_of_a_worker_that_stops_waits_again_and_the_attempt_does_not_count(
    sleeping: Scene,
) -> None:
    sleeping.run_until(sleeping.is_at_work, sleeping.attempt.interrupt)
    view = sleeping.view()
    assert (view.state, view.attempt) == ("queued", 0)


def test_claim_that_somebody_else_got_ends_the_process_and_leaves_no_trace(
    sleeping: Scene,
) -> None:
    def reclaim() -> None:
        due(sleeping.database, utc_now() + timedelta(seconds=60))

    sleeping.run_until(sleeping.is_at_work, reclaim)
    view = sleeping.view()
    assert (view.state, view.attempt) == ("queued", 1)
    assert not sleeping.result().exists()


def test_curves_are_kept_to_their_last_point(waiting: Scene) -> None:
    def go_on() -> None:
        files(waiting)[0].unlink()

    waiting.run_until(lambda: bool(files(waiting)), go_on)
    assert waiting.view().state == "done"
    assert_whole_curve(waiting)


@pytest.mark.slow
def test_a_database_that_does_not_answer_for_longer_than_a_lease_costs_no_work(
    waiting: Scene,
) -> None:
    def hold_up() -> None:
        with written_by_another(waiting.folder / "modelyard.db"):
            began = time.monotonic()
            while time.monotonic() < began + LEASE.total_seconds() + 3:
                assert files(waiting)
                time.sleep(0.2)
            files(waiting)[0].unlink()
            while files(waiting):
                assert time.monotonic() < began + WAIT_S
                time.sleep(0.05)

    waiting.run_until(lambda: bool(files(waiting)), hold_up)
    view = waiting.view()
    assert (view.state, view.attempt) == ("done", 1)
    assert_whole_curve(waiting)


@contextmanager
def written_by_another(path: Path) -> Iterator[None]:
    """Nobody else can write to the database meanwhile."""
    with closing(sqlite3.connect(path, timeout=WAIT_S, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        yield
        other.execute("ROLLBACK")


def files(scene: Scene) -> list[Path]:
    return list((scene.folder / "scratch").rglob("waiting"))


def assert_whole_curve(scene: Scene) -> None:
    with scene.database.reading() as session:
        log = service.get_log(session, scene.id)
    assert [point.step for point in log.points] == list(range(len(log.points)))
    assert log.points
    assert log.text.splitlines() == [f"{len(log.points)} steps"]


@pytest.fixture
def full_disk(working: Scene) -> Iterator[Scene]:
    """The store lies on a file system that is full."""
    store = working.folder / "store"
    store.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", str(store)]
    if os.geteuid() != 0 or subprocess.run(mount, check=False).returncode:
        pytest.skip("no file system can be mounted here; run as root")
    try:
        with pytest.raises(OSError, match="No space"):
            (store / "all").write_bytes(b"x" * (1 << 20))
        yield working
    finally:
        subprocess.run(["umount", str(store)], check=True)


def test_full_disk_is_the_reason_of_an_attempt_that_is_tried_again(full_disk: Scene) -> None:
    full_disk.attempt.run()
    view = full_disk.view()
    assert view.state == "queued"
    assert "the worker met No space left on device" in view.reason
    assert not full_disk.result().exists()
    (full_disk.folder / "store" / "all").unlink()
    again = claim(full_disk.database, WorkerIdentity("w", "m"), now=utc_now() + timedelta(60))
    assert again is not None
    Attempt(full_disk.context, again).run()
    assert full_disk.view().state == "publishing"

"""Jobs on a real server: a worker starts with the first, runs it, and ends when it is idle."""

import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from control.jobs import service
from control.jobs.policy.states import ENDS
from control.jobs.spec import JobSpec
from control.jobs.specs.optimise import OptimiseSpec
from control.jobs.views import JobView, SourceFolder
from control.sql.database import Actor, Database
from support.server import ROOT, Server, running

DIGITS = ROOT / "server" / "cli" / "demo_files" / "models" / "digits"
ADA = Actor("user:ada", "api")
WAIT_S = 180.0


def until(condition: Callable[[], bool], server: Server) -> None:
    deadline = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline, server.log()
        time.sleep(0.1)


def enqueue(database: Database, models: Path, spec: JobSpec) -> JobView:
    source = SourceFolder("digits", 1, folder=str(models / "digits"))
    with database.change(ADA) as tx:
        return service.enqueue(tx, spec, {"source": source})


def shown(database: Database, job_id: str) -> JobView:
    with database.reading() as session:
        return service.get_job(session, job_id)


@pytest.mark.slow
def test_worker_starts_with_the_first_job_runs_it_and_ends_when_idle(tmp_path: Path) -> None:
    models, state = tmp_path / "models", tmp_path / "state"
    shutil.copytree(DIGITS, models / "digits")
    with running(models, allow_admin=True, state_dir=state, job_idle_secs=2) as server:
        database = Database(f"sqlite:///{state / 'modelyard.db'}")
        try:
            until(lambda: "admin    http" in server.log(), server)
            job = enqueue(database, models, OptimiseSpec(model="digits"))
            until(lambda: shown(database, job.id).state in (*ENDS, "publishing"), server)
            view = shown(database, job.id)
            assert view.state in ("publishing", "done"), view
            assert view.fraction == 1.0
            assert list(state.rglob(f"{job.id}/1/output/1/model.onnx")) or view.state == "done"
            until(lambda: "the job worker ends" in server.log(), server)
            assert "jobs: the worker sandbox (default) confines" in server.log()
            until(lambda: not list((state / "jobs" / "scratch").iterdir()), server)
        finally:
            database.close()

"""Jobs whose worker, process, control process, server and broker are killed at random moments.

Every job ends once, and nothing of any of them remains but the results.
"""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from sqlalchemy import select

from control.errors import ControlError
from control.jobs import service
from control.jobs.policy.limits import JobLimits
from control.jobs.policy.states import ENDS, UNFINISHED, JobState
from control.jobs.service import JobTerms
from control.jobs.specs.optimise import OptimiseSpec
from control.jobs.tables import Job
from control.jobs.views import SourceFolder
from control.sql.database import Actor, Database
from control.tables import Event
from support.brokers import KillableBroker, broker
from support.server import ROOT, free_ports, write_identity

JOBS = 50
KILLS = 20
SEED = 20261127
LENGTH = 12
"""Jobs take up to half as many seconds."""

WAIT_S = 540.0
VICTIMS = ("worker", "process", "control", "server", "broker")


class Yard:
    """A server and two workers, as their operator would start them again."""

    def __init__(self, folder: Path, broker: KillableBroker) -> None:
        self.broker = broker
        self.state, self.models = folder / "state", folder / "models"
        self._log = (folder / "log").open("ab")
        write_identity(self.models, "copied")
        self._ports = free_ports(4)
        self.server = self._serve()
        self.database = self._opened()
        self.workers = [self._work() for _ in range(2)]

    def crash(self, victim: str, chosen: random.Random) -> None:
        """Kill it, and start it again where nobody else does."""
        if victim == "broker":
            self.broker.crash()
        elif victim == "server":
            self.server.kill()
            self.server.wait()
            self.server = self._serve()
        elif victim == "worker":
            at = chosen.randrange(len(self.workers))
            self.workers[at].kill()
            self.workers[at].wait()
            self.workers[at] = self._work()
        else:
            title = "modelyard job " if victim == "process" else "modelyard control"
            self._kill_one(title, chosen)

    def _kill_one(self, title: str, chosen: random.Random) -> None:
        """Any process with the title, as soon as there is one."""
        deadline = time.monotonic() + 30
        while time.monotonic() < deadline:
            with suppress(ProcessLookupError, IndexError):
                os.kill(chosen.choice(self.named(title)), signal.SIGKILL)
                return
            time.sleep(0.05)

    def named(self, title: str) -> list[int]:
        """Processes of this test with the title in their command lines."""
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with suppress(OSError):
                command = Path(f"/proc/{name}/cmdline").read_bytes().decode(errors="replace")
                around = Path(f"/proc/{name}/environ").read_bytes().decode(errors="replace")
                if title in command and f"YARD={self.state}" in around:
                    found.append(int(name))
        return found

    def close(self) -> None:
        for process in (*self.workers, self.server):
            process.terminate()
        for process in (*self.workers, self.server):
            process.wait(60)
        self.database.close()
        self.broker.stop()
        self._log.close()

    def log(self) -> str:
        return Path(self._log.name).read_text(errors="replace")[-20_000:]

    def _flags(self) -> list[str]:
        return [
            f"--state-dir={self.state}",
            f"--job-broker={self.broker.url}",
            f"--model-repository={self.models}",
        ]

    def _serve(self) -> "subprocess.Popen[bytes]":
        names = ("http-port", "grpc-port", "metrics-port", "admin-port")
        ports = [f"--{name}={port}" for name, port in zip(names, self._ports, strict=True)]
        return self._started("-m", "server.cli", "serve", "--job-worker=off", *ports)

    def _work(self) -> "subprocess.Popen[bytes]":
        return self._started("-P", "-m", "support.job_worker_program", "--job-slots=2")

    def _started(self, *arguments: str) -> "subprocess.Popen[bytes]":
        paths = f"{ROOT}:{ROOT / 'tests'}"
        return subprocess.Popen(
            [sys.executable, *arguments, *self._flags()],
            cwd=ROOT,
            env={**os.environ, "YARD": str(self.state), "PYTHONPATH": paths},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )

    def _opened(self) -> Database:
        deadline = time.monotonic() + 60
        while "admin    http" not in self.log():
            assert time.monotonic() < deadline, self.log()
            time.sleep(0.1)
        return Database(f"sqlite:///{self.state / 'modelyard.db'}")


@pytest.fixture(params=["folder", "redis", "rabbitmq"])
def yard(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Yard]:
    found = Yard(tmp_path, broker(request.param, tmp_path))
    try:
        yield found
    finally:
        found.close()


def _enqueue(yard: Yard) -> list[str]:
    source = SourceFolder("copied", 1, folder=str(yard.models / "copied"))
    ids = []
    for number in range(JOBS):
        with yard.database.change(Actor(f"user:{number % 10}", "api")) as tx:
            limits = JobLimits(threads=LENGTH)
            terms = JobTerms(result_model="result", most_attempts=5, limits=limits)
            spec = OptimiseSpec(model="copied")
            ids.append(service.enqueue(tx, spec, {"source": source}, terms).id)
    return ids


def _unfinished(yard: Yard) -> int:
    with suppress(ControlError), yard.database.reading() as session:
        return len(session.scalars(select(Job.id).where(Job.state.in_(UNFINISHED))).all())
    return -1


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_every_job_ends_once_whatever_is_killed(yard: Yard) -> None:
    ids = _enqueue(yard)
    _kill_until_all_have_ended(yard, ids)
    _check_rows(yard, ids)
    for worker in yard.workers:
        worker.terminate()
        worker.wait(60)
    assert yard.named("modelyard job ") == []
    assert list((yard.state / "jobs" / "scratch").iterdir()) == []


def _kill_until_all_have_ended(yard: Yard, ids: list[str]) -> None:
    chosen = random.Random(SEED)
    victims = [VICTIMS[number % len(VICTIMS)] for number in range(KILLS)]
    chosen.shuffle(victims)
    deadline = time.monotonic() + WAIT_S
    while left := _unfinished(yard):
        assert time.monotonic() < deadline, f"{left} left\n{yard.log()}"
        assert all(one.poll() is None for one in yard.workers), yard.log()
        if not victims:
            time.sleep(0.2)
            continue
        time.sleep(chosen.uniform(0.5, 4.0))
        yard.crash(victims.pop(), chosen)
        if chosen.random() < 0.2:
            with suppress(ControlError), yard.database.change(Actor("user:1", "api")) as tx:
                service.cancel(tx, chosen.choice(ids))


def _check_rows(yard: Yard, ids: list[str]) -> None:
    """Each job has ended, its work was taken once at most, and made one version."""
    with yard.database.reading() as session:
        jobs = session.scalars(select(Job)).all()
        kinds = select(Event.subject).where(Event.kind == "job.publishing")
        taken = Counter(session.scalars(kinds))
    states = Counter(str(job.state) for job in jobs)
    attempts = Counter(job.attempt for job in jobs)
    print(states, attempts, {job.reason for job in jobs})
    assert {job.id for job in jobs} == set(ids)
    assert set(states) <= set(map(str, ENDS))
    assert set(taken.values()) <= {1}
    assert max(attempts) > 1, "nothing that was killed had work to do"
    versions = [job.result_version for job in jobs if job.state == JobState.DONE]
    assert len(set(versions)) == len(versions) > JOBS / 2

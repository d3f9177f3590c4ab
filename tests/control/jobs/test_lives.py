"""Whatever workers, people, brokers and time do, a job ends once, and only by whoever holds it."""

import shutil
import tempfile
from collections import Counter
from datetime import timedelta
from pathlib import Path

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    Bundle,
    RuleBasedStateMachine,
    invariant,
    multiple,
    rule,
    run_state_machine_as_test,
)

from control.errors import Conflict, LostLease
from control.jobs import service
from control.jobs.claims import (
    AttemptCancelled,
    AttemptDone,
    AttemptFailed,
    AttemptInterrupted,
    AttemptRefused,
    ClaimedJob,
    Outcome,
    claim,
    finish,
    renew,
)
from control.jobs.messages import CurvePoint, JobProgress
from control.jobs.policy.admission import WorkerIdentity
from control.jobs.policy.states import ENDS
from control.jobs.service import JobTerms
from control.jobs.specs.optimise import OptimiseSpec
from control.jobs.sweeper import due
from control.jobs.tables import Job
from control.jobs.views import JobView
from control.sql.database import Actor, Database
from support.control import ADA, rows, told
from support.jobs import ADVICE, REFUSED, START, enqueued, shown

WORKERS = [
    WorkerIdentity("one", "machine-1"),
    WorkerIdentity("two", "machine-1"),
    WorkerIdentity("three", "machine-2"),
]
OUTCOMES: list[Outcome] = [
    AttemptDone(ADVICE),
    AttemptDone(REFUSED),
    AttemptFailed("broken"),
    AttemptFailed("the memory was full", again=True),
    AttemptRefused("no"),
    AttemptCancelled(),
    AttemptInterrupted(),
]


class JobLives(RuleBasedStateMachine):
    """Workers that have lost a job go on writing as if they had it."""

    def __init__(self, migrated: Path) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        shutil.copy(migrated, self.folder / "modelyard.db")
        self.database = Database(f"sqlite:///{self.folder}/modelyard.db")
        self.now = START
        self.holders: dict[str, int] = {}  # job → fence of the claim that has it
        self.jobs_made = 0

    jobs = Bundle("jobs")
    claims = Bundle("claims")

    @rule(
        target=jobs,
        heavy=st.booleans(),
        by=st.sampled_from(["user:ada", "user:bob"]),
        priority=st.integers(-1, 1),
        attempts=st.integers(1, 3),
    )
    def enqueue(self, heavy: bool, by: str, priority: int, attempts: int) -> str:
        spec = None if heavy else OptimiseSpec(model="digits")
        terms = JobTerms(priority=priority, most_attempts=attempts)
        self.jobs_made += 1
        return enqueued(self.database, terms=terms, spec=spec, actor=Actor(by, "api")).id

    @rule(target=claims, worker=st.sampled_from(WORKERS), job_id=st.none() | jobs)
    def deliver(self, worker: WorkerIdentity, job_id: str | None) -> object:
        """A message arrives: once, twice, late, or for a job that is over."""
        found = claim(self.database, worker, job_id, now=self.now)
        if found is None:
            return multiple()
        assert found.id not in self.holders
        self.holders[found.id] = found.fence
        return found

    @rule(target=claims, held=claims, worker=st.sampled_from(WORKERS))
    def redeliver(self, held: ClaimedJob, worker: WorkerIdentity) -> object:
        """The holder is silent for a while, and the job is offered to somebody else."""
        for seconds in (31, 301):
            self.wait(seconds)
            self.sweep()
        return self.deliver(worker, held.id)

    @rule(held=claims, fraction=st.floats(0, 1))
    def go_on(self, held: ClaimedJob, fraction: float) -> None:
        before = shown(self.database, held.id)
        news = (JobProgress(fraction, "working"), [CurvePoint("loss", 1, 2)], ["line"])
        if self.holders.get(held.id) == held.fence:
            renew(self.database, held, *news, now=self.now)
            return
        with pytest.raises(LostLease):
            renew(self.database, held, *news, now=self.now)
        assert shown(self.database, held.id) == before

    @rule(held=claims, outcome=st.sampled_from(OUTCOMES))
    def end(self, held: ClaimedJob, outcome: Outcome) -> None:
        before = shown(self.database, held.id)
        if self.holders.get(held.id) == held.fence:
            finish(self.database, held, outcome, now=self.now)
            del self.holders[held.id]
            return
        with pytest.raises(LostLease):
            finish(self.database, held, outcome, now=self.now)
        assert shown(self.database, held.id) == before

    @rule(job_id=jobs)
    def cancel(self, job_id: str) -> None:
        before = shown(self.database, job_id)
        try:
            with self.database.change(ADA) as tx:
                service.cancel(tx, job_id)
        except Conflict:
            assert before.state in ENDS

    @rule(seconds=st.sampled_from([1, 10, 31, 400]))
    def wait(self, seconds: float) -> None:
        self.now += timedelta(seconds=seconds)

    @rule()
    def sweep(self) -> None:
        sent = {job.id for job in due(self.database, now=self.now)}
        for view in self._shown():
            if view.state != "running":
                self.holders.pop(view.id, None)
            assert view.id not in sent or view.state == "queued"

    @invariant()
    def running_jobs_have_one_holder_each(self) -> None:
        running = {view.id for view in self._shown() if view.state == "running"}
        assert running == set(self.holders)

    @invariant()
    def a_machine_runs_one_heavy_job_and_a_principal_two(self) -> None:
        running = [view for view in self._shown() if view.state == "running"]
        heavy = Counter(view.machine for view in running if view.heavy)
        assert all(count == 1 for count in heavy.values())
        assert all(count <= 2 for count in Counter(view.by for view in running).values())

    def teardown(self) -> None:
        """Left to an honest worker, all jobs end, each once."""
        for _ in range(10 * self.jobs_made):
            self.now += timedelta(seconds=301)
            due(self.database, now=self.now)
            while found := claim(self.database, WORKERS[0], now=self.now):
                finish(self.database, found, AttemptDone(ADVICE), now=self.now)
            if all(view.state in ENDS for view in self._shown()):
                break
        ends = Counter(
            subject for kind, subject in told(self.database) if kind.removeprefix("job.") in ENDS
        )
        assert sorted(ends) == sorted(f"job:{view.id}" for view in self._shown())
        assert all(count == 1 for count in ends.values())
        self.database.close()
        shutil.rmtree(self.folder)

    def _shown(self) -> list[JobView]:
        return [shown(self.database, row.id) for row in rows(self.database, Job)]


def _run(migrated: Path, examples: int) -> None:
    found = settings(max_examples=examples, stateful_step_count=30, deadline=None)
    run_state_machine_as_test(lambda: JobLives(migrated), settings=found)  # type: ignore[no-untyped-call]


def test_every_job_ends_once_and_nobody_else_writes(migrated_sqlite: Path) -> None:
    _run(migrated_sqlite, 3)


@pytest.mark.slow
def test_every_job_ends_once_in_many_histories(migrated_sqlite: Path) -> None:
    _run(migrated_sqlite, 60)

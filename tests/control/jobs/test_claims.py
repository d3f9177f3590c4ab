"""A worker claims a job, says how far it is, and says how it ended."""

import pytest

from control.errors import LostLease
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
from control.jobs.policy.admission import USUAL_QUEUE, WorkerIdentity
from control.jobs.policy.limits import JobCost
from control.jobs.service import JobTerms
from control.jobs.specs.optimise import OptimiseSpec
from control.jobs.specs.quantise import QuantiseSpec
from control.jobs.sweeper import due
from control.jobs.tables import Job
from control.sql.database import Actor, Database
from control.tables import Event
from support.control import rows, told
from support.jobs import ACCEPTED, ADVICE, OTHER, REFUSED, START, WORKER, after, enqueued, shown

BOB = Actor("user:bob", "cli")


def claimed(database: Database, worker: WorkerIdentity = WORKER, at: float = 0) -> ClaimedJob:
    found = claim(database, worker, now=after(at))
    assert found is not None
    return found


def test_a_claim_has_all_that_the_work_needs(database: Database) -> None:
    job = enqueued(database)
    found = claimed(database)
    assert (found.id, found.attempt, found.fence) == (job.id, 1, 1)
    assert found.spec == QuantiseSpec(model="digits")
    assert found.limits == job.limits
    assert found.sources["source"].snapshot == "a" * 64
    view = shown(database, job.id)
    assert (view.state, view.machine, view.started_at) == ("running", "machine-1", START)


def test_a_job_is_claimed_once_however_often_workers_are_told(database: Database) -> None:
    job = enqueued(database)
    claimed(database)
    for worker in (WORKER, OTHER):
        assert claim(database, worker, job.id, now=START) is None
        assert claim(database, worker, now=START) is None


def test_the_most_urgent_job_comes_first_and_a_named_one_alone(database: Database) -> None:
    usual = enqueued(database)
    urgent = enqueued(database, terms=JobTerms(priority=5))
    assert claimed(database).id == urgent.id
    assert claim(database, OTHER, usual.id, now=START) is not None


def test_a_job_that_cannot_be_read_fails_and_one_of_another_release_waits(
    database: Database,
) -> None:
    strange = {"type": "shrink", "model": "digits"}
    broken = {"type": "quantise", "model": 7}
    urgent = JobTerms(priority=5)
    unknown, unreadable = (enqueued(database, terms=urgent).id for _ in range(2))
    usual = enqueued(database)
    with database.change(BOB) as tx:
        row = tx.session.get_one(Job, unknown)
        row.type, row.spec = "shrink", strange
        tx.session.get_one(Job, unreadable).spec = broken
    assert claimed(database).id == usual.id
    assert shown(database, unknown).state == "queued"
    view = shown(database, unreadable)
    assert view.state == "failed"
    assert "cannot be read by this release" in view.reason


def test_a_worker_takes_from_its_own_queues_alone(database: Database) -> None:
    enqueued(database, terms=JobTerms(queue="gpu"))
    assert claim(database, WORKER, now=START) is None
    both = WorkerIdentity("worker-3", "machine-3", frozenset({USUAL_QUEUE, "gpu"}))
    assert claim(database, both, now=START) is not None


def test_a_machine_runs_one_heavy_job_at_a_time(database: Database) -> None:
    for actor in (BOB, Actor("user:eve", "cli")):
        enqueued(database, actor=actor)
    light = enqueued(database, spec=OptimiseSpec(model="digits"))
    claimed(database)
    assert claimed(database).id == light.id
    assert claim(database, WORKER, now=START) is None
    assert claim(database, OTHER, now=START) is not None


def test_progress_points_and_lines_are_kept_and_told_once_a_second(database: Database) -> None:
    job = enqueued(database)
    held = claimed(database)
    for tenth in range(20):
        progress = JobProgress(tenth / 20, f"batch {tenth}")
        point = CurvePoint("loss", tenth, 1 / (tenth + 1))
        answer = renew(database, held, progress, [point], [f"line {tenth}"], now=after(tenth / 10))
        assert not answer.cancel
    view = shown(database, job.id)
    assert (view.fraction, view.progress) == (0.95, "batch 19")
    with database.reading() as session:
        log = service.get_log(session, job.id)
    assert log.text.splitlines() == [f"line {number}" for number in range(20)]
    assert len(log.points) == 20
    (event,) = [one for one in rows(database, Event) if one.kind == "job.progress"]
    assert (event.subject, event.data["fraction"]) == (f"job:{job.id}", 0.5)


def test_progress_never_goes_back(database: Database) -> None:
    job = enqueued(database)
    held = claimed(database)
    renew(database, held, JobProgress(0.5, "half"), now=after(1))
    renew(database, held, JobProgress(0.2, "again"), now=after(2))
    assert shown(database, job.id).fraction == 0.5


@pytest.mark.parametrize(
    ("outcome", "state", "reason"),
    [
        (AttemptDone(ACCEPTED), "publishing", ""),
        (AttemptDone(ADVICE), "done", ""),
        (AttemptDone(REFUSED), "failed", "accuracy 61 % is below 90 %"),
        (AttemptFailed("it ran out of memory"), "failed", "it ran out of memory"),
        (AttemptFailed("the worker stopped", again=True), "queued", "the worker stopped"),
        (AttemptRefused("'digits' has no weights"), "failed", "'digits' has no weights"),
        (AttemptCancelled(), "cancelled", ""),
        (AttemptInterrupted(), "queued", ""),
    ],
)
def test_a_job_ends_as_its_worker_says(
    database: Database, outcome: Outcome, state: str, reason: str
) -> None:
    job = enqueued(database)
    held = claimed(database)
    cost = JobCost(12.5, 10.0, 1 << 20)
    assert finish(database, held, outcome, cost, ["bye"], now=after(5)) == state
    view = shown(database, job.id)
    assert (view.state, view.reason, view.cost) == (state, reason, cost)
    assert (view.finished_at is not None) == (state in ("done", "failed", "cancelled"))
    assert told(database)[-1] == (f"job.{state}", f"job:{job.id}")


def test_a_report_is_kept_also_where_it_refuses_the_result(database: Database) -> None:
    job = enqueued(database)
    finish(database, claimed(database), AttemptDone(REFUSED), now=START)
    with database.reading() as session:
        assert service.get_report(session, job.id) == REFUSED


def test_an_attempt_that_was_interrupted_does_not_count(database: Database) -> None:
    enqueued(database)
    for fence in range(1, 6):
        held = claimed(database)
        assert (held.attempt, held.fence) == (1, fence)
        finish(database, held, AttemptInterrupted(), now=START)


def test_a_worker_hears_that_its_job_is_to_end(database: Database) -> None:
    job = enqueued(database)
    held = claimed(database)
    with database.change(BOB) as tx:
        service.cancel(tx, job.id)
    assert renew(database, held, now=after(1)).cancel
    assert shown(database, job.id).state == "running"
    finish(database, held, AttemptCancelled(), now=after(2))
    assert shown(database, job.id).state == "cancelled"


def test_a_worker_that_lost_its_job_can_write_nothing(database: Database) -> None:
    job = enqueued(database)
    lost = claimed(database)
    due(database, now=after(31))
    for again in (False, True):  # nobody has it, then somebody else
        if again:
            claimed(database, OTHER, at=60)
        before = shown(database, job.id)
        with pytest.raises(LostLease, match=job.id):
            renew(
                database,
                lost,
                JobProgress(1, "all"),
                [CurvePoint("loss", 0, 0)],
                ["x"],
                now=after(60),
            )
        with pytest.raises(LostLease):
            finish(database, lost, AttemptDone(ACCEPTED), now=after(60))
        assert shown(database, job.id) == before
    with database.reading() as session:
        assert service.get_log(session, job.id).text == ""

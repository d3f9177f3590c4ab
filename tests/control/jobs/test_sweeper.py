"""The sweeper sends what waits and takes back what nobody runs any more."""

from control.jobs import service
from control.jobs.claims import AttemptFailed, claim, finish, renew
from control.jobs.service import JobTerms
from control.jobs.sweeper import due
from control.sql.database import Database
from control.tables import Counter
from support.control import ADA, rows
from support.jobs import WORKER, after, enqueued, shown


def ids(database: Database, at: float) -> list[str]:
    return [job.id for job in due(database, now=after(at))]


def test_a_job_is_sent_at_once_and_again_every_30_seconds_until_it_is_claimed(
    database: Database,
) -> None:
    job = enqueued(database)
    assert [ids(database, at) for at in (0, 1, 29, 30, 31, 60)] == [
        [job.id], [], [], [job.id], [], [job.id]
    ]  # fmt: skip
    assert claim(database, WORKER, now=after(61)) is not None
    assert ids(database, 90) == []


def test_urgent_jobs_are_sent_first_with_their_queue(database: Database) -> None:
    usual = enqueued(database)
    urgent = enqueued(database, terms=JobTerms(priority=9, queue="gpu"))
    found = due(database, now=after(0))
    assert [(job.id, job.queue) for job in found] == [(urgent.id, "gpu"), (usual.id, "default")]


def test_a_job_whose_worker_is_gone_waits_for_another_attempt(database: Database) -> None:
    job = enqueued(database)
    claim(database, WORKER, now=after(0))
    assert ids(database, 29) == []
    assert ids(database, 30) == []
    view = shown(database, job.id)
    assert (view.state, view.attempt) == ("queued", 1)
    assert "gone" in view.reason
    assert claim(database, WORKER, job.id, now=after(34)) is None
    assert ids(database, 35) == [job.id]
    again = claim(database, WORKER, job.id, now=after(35))
    assert again is not None
    assert (again.attempt, again.fence) == (2, 2)


def test_a_sweep_that_is_to_take_nothing_back_leaves_running_jobs_to_their_workers(
    database: Database,
) -> None:
    job = enqueued(database)
    held = claim(database, WORKER, now=after(0))
    assert held is not None
    assert due(database, now=after(60), reclaim=False) == ()
    renew(database, held, now=after(61))
    assert shown(database, job.id).state == "running"


def test_a_worker_that_renews_its_claim_keeps_its_job(database: Database) -> None:
    enqueued(database)
    held = claim(database, WORKER, now=after(0))
    assert held is not None
    for at in range(20, 200, 20):
        renew(database, held, now=after(at))
        assert ids(database, at + 1) == []
    finish(database, held, AttemptFailed("no"), now=after(200))


def test_a_job_that_loses_its_worker_every_time_fails_in_the_end(database: Database) -> None:
    job = enqueued(database, terms=JobTerms(most_attempts=2))
    claim(database, WORKER, now=after(0))
    due(database, now=after(30))
    claim(database, WORKER, now=after(40))
    due(database, now=after(70))
    view = shown(database, job.id)
    assert (view.state, view.attempt) == ("failed", 2)
    assert "gone" in view.reason


def test_a_job_to_be_cancelled_whose_worker_is_gone_is_cancelled(database: Database) -> None:
    job = enqueued(database)
    claim(database, WORKER, now=after(0))
    with database.change(ADA) as tx:
        service.cancel(tx, job.id)
    due(database, now=after(30))
    assert shown(database, job.id).state == "cancelled"


def test_a_look_with_nothing_to_do_writes_nothing(database: Database) -> None:
    enqueued(database)
    due(database, now=after(0))
    before = [counter.value for counter in rows(database, Counter)]
    assert due(database, now=after(1)) == ()
    assert [counter.value for counter in rows(database, Counter)] == before

"""Jobs that have ended are forgotten after a while."""

from datetime import timedelta

import pytest

from control.clock import utc_now
from control.errors import NotFound, TooMany
from control.jobs import service, traffic
from control.jobs.claims import AttemptDone, AttemptFailed, claim, finish
from control.jobs.creation import JobRights, retry
from control.jobs.retention import KEEP, KEEP_TRAFFIC, forget_jobs, forget_traffic
from control.jobs.service import JobTerms
from control.jobs.specs.profile import ProfileSpec
from control.jobs.tables import Job, JobOutput, JobReportRow, JobTraffic
from control.jobs.traffic import TrafficRequest, TrafficTensor
from control.sql.database import SYSTEM, Database
from support.control import rows
from support.deployed import deploy
from support.jobs import ADVICE, WORKER, enqueued

SAMPLED = TrafficRequest(0.0, (TrafficTensor("X", "FP32", (1,), (1.0,)),))
RIGHTS = JobRights(check_use=lambda _: None, check_trusted=lambda: None)


def ended(database: Database) -> str:
    job = enqueued(database)
    held = claim(database, WORKER, job.id)
    assert held is not None
    finish(database, held, AttemptDone(ADVICE))
    return job.id


def forget(database: Database, later: timedelta, keep_jobs: int = 100) -> int:
    with database.change(SYSTEM) as tx:
        tx.now = utc_now() + later
        return forget_jobs(tx, keep_jobs)


def test_an_ended_job_is_forgotten_with_all_its_rows_and_a_waiting_one_stays(
    database: Database,
) -> None:
    job_id, waiting = ended(database), enqueued(database)
    assert forget(database, KEEP - timedelta(hours=1)) == 0
    assert forget(database, KEEP + timedelta(hours=1)) == 1
    assert [row.id for row in rows(database, Job)] == [waiting.id]
    assert [row.job_id for row in rows(database, JobOutput)] == [waiting.id]
    assert rows(database, JobReportRow) == []
    with database.reading() as session:
        assert service.get_job(session, waiting.id).id != job_id


def test_of_many_jobs_the_newest_are_kept(database: Database) -> None:
    ids = [ended(database) for _ in range(4)]
    assert forget(database, timedelta(0), keep_jobs=2) == 2
    assert [row.id for row in rows(database, Job)] == ids[2:]


def profiled(database: Database, outcome: AttemptDone | AttemptFailed) -> str:
    """A profile on sampled requests that came to `outcome`."""
    spec = ProfileSpec(model="digits", data="sampled")
    job = enqueued(database, spec=spec, terms=JobTerms(traffic=(SAMPLED,)))
    held = claim(database, WORKER, job.id)
    assert held is not None
    finish(database, held, outcome)
    return job.id


def test_sampled_requests_go_when_their_profile_is_done(database: Database) -> None:
    profiled(database, AttemptDone(ADVICE))
    assert rows(database, JobTraffic) == []


def test_sampled_requests_of_a_failed_profile_are_there_for_a_retry_for_a_day(
    database: Database,
) -> None:
    deploy(database)
    job_id = profiled(database, AttemptFailed("it broke"))
    forgotten(database, KEEP_TRAFFIC - timedelta(hours=2))
    assert [one.job_id for one in rows(database, JobTraffic)] == [job_id]
    forgotten(database, KEEP_TRAFFIC)
    assert rows(database, JobTraffic) == []
    with database.change(SYSTEM) as tx, pytest.raises(NotFound, match="ask for another profile"):
        retry(tx, job_id, RIGHTS)


def forgotten(database: Database, later: timedelta) -> None:
    with database.change(SYSTEM) as tx:
        job = tx.session.query(Job).one()
        tx.now = job.created_at + later
        forget_traffic(tx)


def test_sampled_requests_of_all_jobs_together_have_a_bound(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    size = len(traffic.encode_traffic((SAMPLED,)))
    monkeypatch.setattr(service, "MOST_TOTAL_BYTES", 2 * size)
    for _ in range(2):
        enqueued(database, terms=JobTerms(traffic=(SAMPLED,)))
    with pytest.raises(TooMany, match="of sampled requests, and all may keep"):
        enqueued(database, terms=JobTerms(traffic=(SAMPLED,)))
    assert len(rows(database, Job)) == 2

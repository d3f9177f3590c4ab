"""Jobs that have ended are forgotten after a while."""

from datetime import timedelta

from control.clock import utc_now
from control.jobs import service
from control.jobs.claims import AttemptDone, claim, finish
from control.jobs.retention import KEEP, forget_jobs
from control.jobs.tables import Job, JobOutput, JobReportRow
from control.sql.database import SYSTEM, Database
from support.control import rows
from support.jobs import ADVICE, WORKER, enqueued


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

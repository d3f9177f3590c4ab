"""The rows of a job whose result becomes a version: all of them, or none."""

import pytest

from control.errors import Conflict
from control.jobs import publication, service
from control.jobs.claims import AttemptDone, claim, finish
from control.jobs.publication import PublishingJob, SealedResult
from control.jobs.retention import KEEP, forget_jobs
from control.jobs.service import JobTerms, get_report
from control.jobs.views import JobView
from control.sql.database import Database
from control.tables import Model, Route, Version
from support.control import ADA, rows
from support.deployed import sealed
from support.jobs import ACCEPTED, WORKER, enqueued, shown


def waiting(database: Database, result_model: str = "digits-int8") -> PublishingJob:
    job = enqueued(database, terms=JobTerms(result_model=result_model))
    held = claim(database, WORKER, job.id)
    assert held is not None
    finish(database, held, AttemptDone(ACCEPTED))
    with database.reading() as session:
        (found,) = publication.publishing(session)
    return found


def published(
    database: Database, job: PublishingJob, *numbers: int, stable: int | None = None
) -> JobView:
    result = SealedResult(sealed(job.model, *numbers), numbers[-1], stable)
    with database.change(ADA) as tx:
        return publication.publish(tx, job, result)


def test_a_published_job_is_done_with_its_version(database: Database) -> None:
    job = waiting(database)
    view = published(database, job, 1)
    assert (view.state, view.result.version, view.result.digest) == ("done", 1, f"{1:064x}")
    (version,) = rows(database, Version)
    assert (version.model, version.lineage["job"], version.lineage["model"]) == (
        "digits-int8", job.id, "digits"
    )  # fmt: skip


def test_publishing_again_changes_nothing(database: Database) -> None:
    job = waiting(database)
    assert published(database, job, 1) == published(database, job, 1)
    assert len(rows(database, Version)) == 1


def test_a_route_keeps_the_version_that_answers_where_the_result_would_take_its_place(
    database: Database,
) -> None:
    published(database, waiting(database), 1)
    assert rows(database, Route) == []
    published(database, waiting(database), 1, 2, stable=1)
    (route,) = rows(database, Route)
    assert [(arm["name"], arm["version"]) for arm in route.arms] == [("stable", 1)]
    published(database, waiting(database), 1, 2, 3, stable=2)
    assert rows(database, Route)[0].revision == route.revision


@pytest.mark.parametrize("how", ["cancelled", "another claim"])
def test_what_is_not_to_be_published_any_more_leaves_no_row(database: Database, how: str) -> None:
    job = waiting(database)
    if how == "cancelled":
        with database.change(ADA) as tx:
            service.cancel(tx, job.id)
    else:
        job = PublishingJob(job.id, job.fence + 1, job.model, job.by, cancel=False)
    with pytest.raises(Conflict):
        published(database, job, 1)
    assert (rows(database, Version), rows(database, Model)) == ([], [])
    assert shown(database, job.id).state == "publishing"


@pytest.mark.parametrize(("cancel", "state"), [(True, "cancelled"), (False, "failed")])
def test_a_result_that_is_given_up_ends_its_job(
    database: Database, cancel: bool, state: str
) -> None:
    job = waiting(database)
    if cancel:
        with database.change(ADA) as tx:
            service.cancel(tx, job.id)
    with database.change(ADA) as tx:
        publication.give_up(tx, job, "the disk is full")
    view = shown(database, job.id)
    assert (view.state, view.reason) == (state, "" if cancel else "the disk is full")


def test_the_report_of_a_version_outlives_its_job(database: Database) -> None:
    job = waiting(database)
    published(database, job, 1)
    with database.change(ADA) as tx:
        tx.now += 2 * KEEP
        assert forget_jobs(tx) == 1
    with database.reading() as session:
        assert get_report(session, job.id) == ACCEPTED

"""Jobs are made, cancelled, tried again and listed."""

from dataclasses import replace

import pytest

from control.errors import Conflict, Invalid, NotFound, TooMany
from control.jobs import service
from control.jobs.claims import AttemptDone, AttemptFailed, claim, finish
from control.jobs.policy.admission import AdmissionRules
from control.jobs.policy.limits import JobLimits
from control.jobs.service import JobTerms
from control.jobs.specs.convert import ConvertSpec
from control.jobs.tables import Job
from control.jobs.views import JobView, SourceFolder
from control.sql.database import Actor, Database
from control.tables import Audit
from support.control import ADA, rows
from support.jobs import ACCEPTED, WORKER, enqueued, shown


def cancelled(database: Database, job_id: str) -> JobView:
    with database.change(ADA) as tx:
        return service.cancel(tx, job_id)


def retried(database: Database, job_id: str) -> JobView:
    with database.change(ADA) as tx:
        return service.retry(tx, job_id)


def test_a_new_job_waits_with_what_was_asked_for_and_who_did(database: Database) -> None:
    terms = JobTerms("digits-int8", JobLimits(threads=2), 3, "gpu")
    job = enqueued(database, terms=terms)
    assert (job.type, job.state, job.by, job.heavy) == ("quantise", "queued", "user:ada", True)
    assert (job.result.model, job.priority, job.queue, job.limits.threads) == (
        "digits-int8", 3, "gpu", 2
    )  # fmt: skip
    assert job.sources[0].digest == "b" * 64
    assert shown(database, job.id) == job
    (audit,) = rows(database, Audit)
    assert (audit.action, audit.subject, audit.actor) == ("job.queued", f"job:{job.id}", "user:ada")


def test_a_job_whose_cause_is_not_committed_was_never_made(database: Database) -> None:
    sources = {"source": SourceFolder("digits", 1)}
    with pytest.raises(ZeroDivisionError), database.change(ADA) as tx:  # noqa: PT012
        service.enqueue(tx, ConvertSpec(model="digits"), sources)
        raise ZeroDivisionError
    with database.reading() as session:
        assert service.list_jobs(session).items == ()


def test_a_principal_may_not_have_more_jobs_than_the_rules_say(database: Database) -> None:
    terms = JobTerms(rules=AdmissionRules(unfinished_per_principal=2))
    first = enqueued(database, terms=terms)
    enqueued(database, terms=terms)
    with pytest.raises(TooMany, match="2 jobs of user:ada"):
        enqueued(database, terms=terms)
    enqueued(database, terms=terms, actor=Actor("user:bob", "cli"))
    cancelled(database, first.id)
    enqueued(database, terms=terms)
    with pytest.raises(TooMany):
        enqueued(database, terms=replace(terms, step=1))
    enqueued(database, terms=replace(terms, step=2))  # the step before has just ended


def test_a_waiting_job_is_cancelled_at_once_and_only_once(database: Database) -> None:
    job = enqueued(database)
    assert cancelled(database, job.id).state == "cancelled"
    with pytest.raises(Conflict, match="is cancelled already"):
        cancelled(database, job.id)
    assert claim(database, WORKER) is None


def test_a_failed_job_that_is_tried_again_has_all_its_attempts(database: Database) -> None:
    job = enqueued(database)
    held = claim(database, WORKER)
    assert held is not None
    with pytest.raises(Conflict, match="only one that has failed or was cancelled"):
        retried(database, job.id)
    finish(database, held, AttemptFailed("it ran out of memory"))
    again = retried(database, job.id)
    assert (again.state, again.attempt, again.reason, again.finished_at) == ("queued", 0, "", None)
    held = claim(database, WORKER)
    assert held is not None
    assert (held.attempt, held.fence) == (1, 2)


def test_a_job_that_is_being_published_is_left_to_the_publisher(database: Database) -> None:
    job = enqueued(database)
    held = claim(database, WORKER)
    assert held is not None
    finish(database, held, AttemptDone(ACCEPTED))
    view = cancelled(database, job.id)
    assert (view.state, view.cancel) == ("publishing", True)


def test_jobs_are_listed_by_model_state_and_type(database: Database) -> None:
    first = enqueued(database, terms=JobTerms("digits-int8"))
    second = enqueued(database, "wine", spec=ConvertSpec(model="wine"))
    cancelled(database, first.id)
    with database.reading() as session:

        def listed(**filters: str) -> list[str]:
            return [job.id for job in service.list_jobs(session, **filters).items]

        assert listed() == [second.id, first.id]
        assert listed(model="digits") == listed(model="digits-int8") == [first.id]
        assert listed(state="queued") == listed(kind="convert") == [second.id]
        with pytest.raises(Invalid, match="'lost' is no state of a job; queued, running"):
            listed(state="lost")


@pytest.mark.parametrize("job_id", ["nothing", "a\0b"])
def test_a_job_that_is_not_there_is_said_to_be_not_there(database: Database, job_id: str) -> None:
    with database.reading() as session:
        for get in (service.get_job, service.get_log, service.get_report):
            with pytest.raises(NotFound, match="there is no job"):
                get(session, job_id)


def test_a_job_without_a_report_says_how_it_is(database: Database) -> None:
    job = enqueued(database)
    with database.reading() as session, pytest.raises(NotFound, match="no report; it is queued"):
        service.get_report(session, job.id)


def test_a_row_of_another_release_is_shown_among_the_others(database: Database) -> None:
    strange, usual = enqueued(database), enqueued(database)
    with database.change(ADA) as tx:
        row = tx.session.get_one(Job, strange.id)
        row.limits, row.cost, row.sources = {"gpus": 1}, {"wall_s": "x"}, {"source": 7}
    with database.reading() as session:
        found = service.list_jobs(session).items
    assert [one.id for one in found] == [usual.id, strange.id]
    assert found[1].limits == strange.limits
    assert (found[1].sources[0].model, found[1].sources[0].version) == ("digits", 1)

"""Pipelines on both databases: begun once, taken on by results, ended with a reason."""

from collections.abc import Mapping
from typing import Any
from zlib import crc32

import pytest

from control.deployments.aliases import list_aliases
from control.errors import Conflict
from control.jobs import publication, service
from control.jobs.claims import AttemptDone, AttemptFailed, claim, finish
from control.jobs.publication import PublishingJob, SealedResult
from control.jobs.report import Report
from control.jobs.tables import Job, JobReportRow, Pipeline
from control.pipelines.queries import get_pipeline, list_pipelines
from control.pipelines.retention import forget_pipelines
from control.pipelines.service import PushedSteps, advance, begin, cancel
from control.pipelines.views import PipelineView
from control.sql.database import Actor, Database
from control.tables import Event, Model, Route, Version
from support.control import rows
from support.deployed import deploy, sealed
from support.jobs import ACCEPTED, ADVICE, WORKER

KIM = Actor("user:kim", "git")
OPTIMISE, QUANTISE = {"type": "optimise"}, {"type": "quantise", "data": "rows.npz"}
VERSIONS = {1: f"{1:064x}", 2: f"{2:064x}"}


def begun(
    database: Database,
    *steps: Mapping[str, Any],
    push: str = "p1",
    versions: Mapping[int, str] = VERSIONS,
    is_checked: bool = True,
) -> PipelineView | None:
    with database.change(KIM) as tx:
        return begin(tx, PushedSteps("digits", versions, steps, push, is_checked))


def started(database: Database, *steps: Mapping[str, Any]) -> PipelineView:
    """A pipeline of `digits` 2, which a push has deployed."""
    deploy(database)
    view = begun(database, *steps)
    assert view is not None
    return view


def shown(database: Database, view: PipelineView) -> PipelineView:
    with database.reading() as session:
        return get_pipeline(session, view.id)


def finished(database: Database, report: Report = ACCEPTED) -> None:
    """A worker does the only job that waits."""
    held = claim(database, WORKER)
    assert held is not None
    finish(database, held, AttemptDone(report))


def published(database: Database, *numbers: int, stable: int | None = None) -> PublishingJob:
    """The only result that waits becomes the last of these versions, as the publisher does it."""
    with database.reading() as session:
        (job,) = publication.publishing(session)
    again(database, job, *numbers, stable=stable)
    return job


def again(database: Database, job: PublishingJob, *numbers: int, stable: int | None = None) -> None:
    versions = numbers or (1,)
    made = sealed(job.model, *(crc32(job.model.encode()) + n for n in versions))
    made = type(made)(
        made.model, made.digest, made.size_bytes, made.files,
        dict(zip(versions, made.versions.values(), strict=True)),
    )  # fmt: skip
    with database.change(Actor(job.by, "system")) as tx:
        advance(tx, publication.publish(tx, job, SealedResult(made, versions[-1], stable)))


def states(view: PipelineView) -> list[str]:
    return [one.state for one in view.steps]


def test_first_step_waits_as_the_pusher_s_job_on_the_pushed_version(database: Database) -> None:
    view = started(database, OPTIMISE, QUANTISE)
    (job,) = rows(database, Job)
    assert (job.pipeline, job.step, job.by) == (view.id, 1, "user:kim")
    assert (job.model, job.version, job.result_model) == ("digits", 2, "digits-optimised")
    assert (view.state, view.step, states(view)) == ("running", 1, ["queued", "waiting"])
    assert (view.version, view.digest, view.push) == (2, f"{2:064x}", "p1")


def test_each_result_is_what_the_next_step_works_on(database: Database) -> None:
    view = started(database, OPTIMISE, QUANTISE)
    finished(database)
    published(database)
    second = rows(database, Job)[-1]
    assert (second.step, second.model, second.version) == (2, "digits-optimised", 1)
    assert second.result_model == "digits-int8"
    files = second.sources["files"]
    assert (files["model"], files["version"]) == ("digits", 2)
    assert states(shown(database, view)) == ["done", "queued"]
    finished(database)
    published(database)
    view = shown(database, view)
    assert (view.state, states(view)) == ("done", ["done", "done"])
    assert (view.steps[1].model, view.steps[1].version) == ("digits-int8", 1)


def test_lineage_of_the_result_names_every_job_down_to_the_pushed_digest(
    database: Database,
) -> None:
    view = started(database, OPTIMISE, QUANTISE)
    for _ in range(2):
        finished(database)
        published(database)
    first, second = rows(database, Job)
    (version,) = [one for one in rows(database, Version) if one.model == "digits-int8"]
    assert (version.lineage["job"], version.lineage["pipeline"]) == (second.id, view.id)
    (earlier,) = version.lineage["earlier"]
    assert (earlier["job"], earlier["model"], earlier["version"]) == (first.id, "digits", 2)
    assert earlier["digest"] == f"{2:064x}"
    assert len(rows(database, JobReportRow)) == 2


def test_publishing_again_takes_no_step_twice(database: Database) -> None:
    started(database, OPTIMISE, QUANTISE)
    finished(database)
    job = published(database)
    again(database, job)
    assert len(rows(database, Job)) == 2


def test_the_same_steps_of_the_same_version_are_taken_once(database: Database) -> None:
    view = started(database, OPTIMISE)
    assert begun(database, OPTIMISE) is None
    assert begun(database, OPTIMISE, push="p2") is None
    assert begun(database, QUANTISE, push="p2") is not None
    with database.change(KIM) as tx:
        cancel(tx, view.id)
    assert begun(database, OPTIMISE) is None
    assert begun(database, OPTIMISE, push="p3") is not None


def test_a_version_that_the_push_has_brought_is_worked_on(database: Database) -> None:
    first, _ = deploy(database)
    view = begun(database, OPTIMISE, push=first)
    assert view is not None
    assert view.version == 1


@pytest.mark.parametrize("how", ["failed", "refused", "cancelled"])
def test_a_step_that_ends_badly_ends_the_pipeline_with_its_reason(
    database: Database, how: str
) -> None:
    view = started(database, OPTIMISE, QUANTISE)
    if how == "cancelled":
        with database.change(KIM) as tx:
            service.cancel(tx, view.steps[0].job)
    else:
        held = claim(database, WORKER)
        assert held is not None
        refused = Report(title="Optimised", verdict="refused", reasons=("it differs",))
        outcome = AttemptDone(refused) if how == "refused" else AttemptFailed("it differs")
        finish(database, held, outcome)
    view = shown(database, view)
    word = "cancelled" if how == "cancelled" else "it differs"
    assert view.reason == f"step 1, optimise: {word}"
    assert states(view)[1] == "skipped"
    assert view.state == ("cancelled" if how == "cancelled" else "failed")


def test_trying_the_job_again_takes_the_pipeline_up_again(database: Database) -> None:
    view = started(database, OPTIMISE, QUANTISE)
    held = claim(database, WORKER)
    assert held is not None
    finish(database, held, AttemptFailed("it differs"))
    with database.change(KIM) as tx:
        service.retry(tx, view.steps[0].job)
    assert (shown(database, view).state, shown(database, view).reason) == ("running", "")
    finished(database)
    published(database)
    assert states(shown(database, view)) == ["done", "queued"]
    kinds = [one.kind for one in rows(database, Event) if one.kind.startswith("pipeline.")]
    assert kinds == ["pipeline.begun", "pipeline.failed", "pipeline.running"]


def test_cancelling_ends_a_waiting_job_at_once_and_a_running_one_with_its_worker(
    database: Database,
) -> None:
    view = started(database, OPTIMISE)
    held = claim(database, WORKER)
    assert held is not None
    with database.change(KIM) as tx:
        assert cancel(tx, view.id).state == "running"
    assert rows(database, Job)[0].cancel
    other = begun(database, QUANTISE, push="p2")
    assert other is not None
    with database.change(KIM) as tx:
        assert cancel(tx, other.id).state == "cancelled"
    with database.change(KIM) as tx, pytest.raises(Conflict, match="is cancelled already"):
        cancel(tx, other.id)


def test_a_step_that_cannot_be_taken_fails_the_pipeline_and_nothing_else(
    database: Database,
) -> None:
    deploy(database)
    taken = {**OPTIMISE, "result_model": "digits"}
    view = begun(database, taken)
    assert view is not None
    assert view.state == "failed"
    assert "only pushes change" in view.reason
    trusting = begun(database, {"type": "convert", "trusted": True}, push="p2", is_checked=False)
    assert trusting is not None
    assert "push the commit again" in trusting.reason
    assert rows(database, Job) == []


def test_a_profile_as_the_last_step_makes_the_pipeline_done(database: Database) -> None:
    view = started(database, {"type": "profile"})
    finished(database, ADVICE)
    assert shown(database, view).state == "done"


def test_first_version_needs_no_rollout_and_the_next_gets_one_from_the_pusher(
    database: Database,
) -> None:
    view = started(database, QUANTISE, {"type": "rollout", "mode": "manual"})
    finished(database)
    published(database)
    view = shown(database, view)
    assert (view.state, states(view), view.steps[1].rollout) == ("done", ["done", "done"], "")
    later = begun(
        database, {**QUANTISE, "floor": 0.5}, {"type": "rollout", "hold": "1m"}, push="p2"
    )
    assert later is not None
    finished(database)
    published(database, 1, 2, stable=1)
    later = shown(database, later)
    assert later.state == "done", later.reason
    (route,) = rows(database, Route)
    assert (route.name, route.rollout_id) == ("digits-int8", later.steps[1].rollout)
    assert later.steps[1].version == 2


def test_an_alias_is_moved_to_the_result(database: Database) -> None:
    started(database, QUANTISE, {"type": "alias", "name": "small"})
    finished(database)
    published(database)
    with database.reading() as session:
        (alias,) = list_aliases(session, "digits-int8").items
    assert (alias.name, alias.version, alias.updated_by) == ("small", 1, "user:kim")


def test_an_earlier_push_rolls_nothing_out_once_a_later_one_has_begun(database: Database) -> None:
    view = started(database, QUANTISE, {"type": "alias", "name": "small"})
    begun(database, OPTIMISE, push="p2")
    finished(database)
    published(database)
    view = shown(database, view)
    assert (view.state, states(view)) == ("failed", ["done", "failed"])
    assert "was pushed since" in view.reason
    with database.reading() as session:
        assert list_aliases(session, "digits-int8").items == ()


def test_what_a_last_step_has_begun_to_change_is_undone_where_it_fails(database: Database) -> None:
    view = started(database, QUANTISE, {"type": "rollout"})
    finished(database)
    with database.change(KIM) as tx:
        row = tx.session.get_one(Pipeline, view.id)
        row.steps = [QUANTISE, {"type": "alias", "name": "NOT ALLOWED"}]
    published(database)
    view = shown(database, view)
    assert view.state == "failed"
    assert "cannot name an alias" in view.reason
    assert [one.name for one in rows(database, Model)] == ["digits", "digits-int8"]


def test_pipelines_are_listed_by_model_and_state_and_forgotten_when_old(
    database: Database,
) -> None:
    view = started(database, OPTIMISE)
    begun(database, QUANTISE, push="p2")
    with database.change(KIM) as tx:
        cancel(tx, view.id)
    with database.reading() as session:
        assert len(list_pipelines(session, model="digits").items) == 2
        assert list_pipelines(session, model="other").items == ()
        (found,) = list_pipelines(session, state="cancelled").items
        assert found.id == view.id
    with database.change(KIM) as tx:
        assert forget_pipelines(tx) == 0
        assert forget_pipelines(tx, keep=0) == 1
    assert len(rows(database, Pipeline)) == 1

"""Pages of jobs: a list, one with its progress and report, a new one, two reports compared."""

import re
from pathlib import Path

import pytest

from admin_ui.templates import STATIC
from control.jobs.claims import AttemptDone, AttemptFailed, claim, finish, renew
from control.jobs.messages import CurvePoint, JobProgress
from control.jobs.report import Figure, Report
from control.jobs.tables import Job
from control.jobs.views import JobView
from control.pipelines.service import PushedSteps, begin
from control.sql.database import SYSTEM, Database
from support.admin import Api
from support.console import Person, person
from support.deployed import deploy
from support.jobs import REPORT, WORKER, enqueued


@pytest.fixture
def operator(running: Api) -> Person:
    return person(running, "operator", "otto")


def reported(database: Database, report: Report = REPORT) -> JobView:
    job = enqueued(database)
    claimed = claim(database, WORKER)
    assert claimed is not None
    renew(database, claimed, JobProgress(0.5, "measuring"), [CurvePoint("loss", 0, 2.0)], ["begun"])
    finish(database, claimed, AttemptDone(report))
    return job


def test_a_list_of_jobs_says_how_far_each_is_and_leads_to_it(
    running: Api, operator: Person
) -> None:
    job = enqueued(running.database)
    claimed = claim(running.database, WORKER)
    assert claimed is not None
    renew(running.database, claimed, JobProgress(0.25, "calibrating"))
    page = operator.get("/jobs").text
    assert f"/jobs/{job.id}" in page
    assert "calibrating" in page
    assert " 25 %" in page
    assert "Nothing matches" in operator.get("/jobs?state=failed").text


def test_a_job_that_runs_shows_progress_curves_and_log_and_can_be_cancelled(
    running: Api, operator: Person
) -> None:
    job = enqueued(running.database)
    claimed = claim(running.database, WORKER)
    assert claimed is not None
    points = [CurvePoint("loss", step, 2.0 - step) for step in range(3)]
    renew(running.database, claimed, JobProgress(0.5, "epoch 3"), points, ["hello <b>"])
    page = operator.get(f"/jobs/{job.id}").text
    assert "epoch 3" in page
    assert "hello &lt;b&gt;" in page
    assert page.count('class="shape"') == 4  # three points, and the legend's
    assert operator.post(f"/jobs/{job.id}/cancel", {}).status == 303
    assert "being cancelled" in operator.get(f"/jobs/{job.id}").text
    assert renew(running.database, claimed).cancel


def test_a_failed_job_says_why_and_can_be_tried_again(running: Api, operator: Person) -> None:
    deploy(running.database)
    job = enqueued(running.database)
    claimed = claim(running.database, WORKER)
    assert claimed is not None
    finish(running.database, claimed, AttemptFailed("out of memory: 4 GiB"))
    assert "out of memory: 4 GiB" in operator.get(f"/jobs/{job.id}").text
    assert operator.post(f"/jobs/{job.id}/retry", {}).status == 303
    assert "queued" in operator.get(f"/jobs/{job.id}").text


def test_a_report_shows_all_that_it_has_and_is_a_file_of_its_own(
    running: Api, operator: Person, tmp_path: Path
) -> None:
    job = reported(running.database)
    page = operator.get(f"/jobs/{job.id}").text
    found = operator.get(f"/jobs/{job.id}/report.html")
    assert found.headers["content-disposition"].endswith('quantise-digits-version-1.html"')
    for text in (page, found.text):
        assert "Agreement is 99.4 %" in text
        assert "Int8 is slower on this processor; serve the source." in text
        assert "1/4 of it" in text
        assert "-0.4 points" in text
        assert "conv1" in text
        assert "EPYC 7543" in text
        assert "onnxruntime 1.31.1" in text
        assert "&lt;b&gt;int8&lt;/b&gt;" in text
        assert "<b>int8" not in text
    assert not re.search(r'(?:src|href)="(?!#)', found.text)
    style = found.text.partition("<style>")[2].partition("</style>")[0]
    assert style == (STATIC / "console.css").read_text()
    document = operator.get(f"/jobs/{job.id}.json").json
    assert document["report"]["figures"][0]["after"] == 1_000_000


def test_two_reports_are_compared_by_their_figures_and_specs(
    running: Api, operator: Person
) -> None:
    first = reported(running.database)
    figures = (Figure("Size", "B", 4_000_000, 2_000_000, "lower"),)
    spec = {"type": "quantise", "floor": 0.9}
    second = reported(
        running.database,
        Report(title="Other", verdict="advice", figures=figures, spec=spec),
    )
    page = operator.get(f"/jobs/compare?first={first.id}&second={second.id}").text
    assert "2 times as much" in page
    assert re.search(r"floor</th><td>0.99</td><td>0.9</td>", page)
    assert "Choose two reports" in operator.get("/jobs/compare").text


def test_a_new_job_has_a_form_for_its_type_and_says_what_is_wrong_beside_the_field(
    night: Api,
) -> None:
    operator = person(night, "operator", "otto")
    page = operator.get("/jobs/new?type=quantise&model=digits&version=2").text
    assert 'name="most_excluded"' in page
    assert "Share of quality that must remain" in page
    form = {"type": "quantise", "source": "digits:2", "floor": "7"}
    refused = operator.post("/jobs/new", form)
    assert refused.status == 422
    assert re.search(r'class="wrong"[^>]*>.*floor is 7', refused.text)
    made = operator.post("/jobs/new", {**form, "floor": "0.9"})
    assert made.status == 303
    place = made.headers["location"]
    job = operator.get(f"{place}.json").json["job"]
    assert (job["type"], job["spec"]["floor"], job["sources"][0]["version"]) == (
        "quantise", 0.9, 2,
    )  # fmt: skip


def test_a_viewer_sees_jobs_and_is_offered_nothing(running: Api) -> None:
    viewer = person(running, "viewer", "vera")
    job = enqueued(running.database)
    page = viewer.get(f"/jobs/{job.id}").text
    assert "Cancel the job" not in page
    assert viewer.post(f"/jobs/{job.id}/cancel", {}).status == 403
    assert "takes the role operator" in viewer.get("/jobs/new").text


def test_a_result_is_compared_with_its_original_by_a_route_of_the_original_s_name(
    night: Api,
) -> None:
    operator = person(night, "operator", "otto")
    job = reported(night.database)
    with night.database.change(SYSTEM) as tx:
        row = tx.session.get_one(Job, job.id)
        row.result_model, row.result_version = "digits", 2
    path = f"/jobs/{job.id}/compare"
    made = operator.post(path, {})
    assert (made.status, made.headers["location"]) == (303, "/routes/digits")
    arms = night.local("GET", "/routes/digits").json["arms"]
    assert [(arm["name"], arm["version"], arm["weight"]) for arm in arms] == [
        ("original", 1, 50),
        ("quantise", 2, 50),
    ]
    again = operator.post(path, {})
    assert again.status == 409
    assert "splits its traffic already" in again.text


def test_a_step_of_a_pipeline_shows_the_others_and_the_pipeline_can_be_cancelled(
    running: Api, operator: Person
) -> None:
    deploy(running.database)
    steps = ({"type": "optimise"}, {"type": "quantise"}, {"type": "rollout"})
    pushed = PushedSteps("digits", {2: f"{2:064x}"}, steps, "", is_checked=True)
    with running.database.change(SYSTEM) as tx:
        view = begin(tx, pushed)
    assert view is not None
    page = operator.get(f"/jobs/{view.steps[0].job}").text
    rail = page[page.index("Steps of the pipeline") :].partition("</ol>")[0]
    assert re.findall(r"<b>(\w+)</b>", rail) == ["optimise", "quantise", "rollout"]
    assert re.findall(r'<li class="(\w+)"', rail) == ["here", "ahead", "ahead"]
    assert "step 1 of a pipeline" in operator.get("/jobs").text
    found = operator.get("/search?q=digits", Accept="application/json").json["items"]
    of_jobs = [(one["kind"], one["name"]) for one in found if one["to"].startswith("/jobs/")]
    assert sorted(of_jobs) == [
        ("job", "optimise digits version 2"),
        ("pipeline", "digits version 2"),
    ]
    assert operator.post(f"/jobs/{view.steps[0].job}/cancel-pipeline", {}).status == 303
    page = operator.get(f"/jobs/{view.steps[0].job}").text
    assert "step 1, optimise: cancelled" in page
    assert "Cancel the pipeline" not in page

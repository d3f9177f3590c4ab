"""The control API's jobs: who may have one made, what is answered, how it is given up."""

from pathlib import Path
from typing import Any

import pytest

from control.errors import TooMany
from control.jobs import service
from control.jobs.claims import AttemptDone, AttemptFailed, claim, finish, renew
from control.jobs.messages import CurvePoint, JobProgress
from control.jobs.policy.admission import AdmissionRules
from control.jobs.specs.convert import ConvertSpec
from control.sql.database import Database
from support.admin import Api
from support.control import ADA
from support.deployed import deploy
from support.jobs import ADVICE, WORKER, enqueued

QUANTISE = {"type": "quantise", "model": "digits"}


@pytest.fixture
def yard(running: Api, sqlite: Database) -> Api:
    """`digits` 1 and 2 of the repository `vision`, both loaded."""
    deploy(sqlite)
    return running


def made(api: Api, **spec: Any) -> Any:
    answer = api.local("POST", "/jobs", {"spec": {**QUANTISE, **spec}})
    assert answer.status == 202, answer.json
    return answer.json


def test_a_job_works_on_the_highest_version_that_is_ready(yard: Api) -> None:
    job = made(yard)
    assert (job["type"], job["state"], job["attempt"]) == ("quantise", "queued", 0)
    assert job["sources"] == [
        {"role": "source", "model": "digits", "version": 2, "digest": f"{2:064x}"}
    ]
    assert job["spec"]["version"] == 2
    assert yard.local("GET", f"/jobs/{job['id']}").json == job
    assert made(yard, version=1)["sources"][0]["version"] == 1


def test_the_result_of_a_git_repository_s_model_is_a_model_of_the_store(yard: Api) -> None:
    assert made(yard)["result"] == {"model": "digits-int8", "version": None, "digest": ""}
    assert made(yard, result_model="small")["result"]["model"] == "small"


def test_jobs_are_listed_by_model_state_and_type(yard: Api) -> None:
    first, second = made(yard), made(yard, type="optimise")
    yard.local("POST", f"/jobs/{first['id']}/cancel")

    def listed(query: str) -> list[str]:
        found = yard.local("GET", f"/jobs?{query}").json["items"]
        return [job["id"] for job in found]

    assert sorted(listed("model=digits")) == sorted([first["id"], second["id"]])
    assert listed("model=digits-optimised") == [second["id"]]
    assert listed("state=cancelled") == listed("type=quantise") == [first["id"]]
    page = yard.local("GET", "/jobs?limit=1").json
    assert len(page["items"]) == 1
    assert yard.local("GET", f"/jobs?limit=1&cursor={page['next']}").json["next"] is None


@pytest.mark.parametrize(
    ("body", "status", "field"),
    [
        ({"spec": {"type": "shrink", "model": "digits"}}, 422, "type"),
        ({"spec": {**QUANTISE, "gpu": True}}, 422, "gpu"),
        ({"spec": {**QUANTISE, "version": "two"}}, 422, "version"),
        ({"spec": {**QUANTISE, "model": "../digits"}}, 422, "model"),
        ({"spec": {**QUANTISE, "result_model": "a/b"}}, 422, "result_model"),
        ({"spec": {**QUANTISE, "result_model": "digits"}}, 409, ""),
        ({"spec": {**QUANTISE, "version": 7}}, 404, ""),
        ({"spec": {**QUANTISE, "model": "nobody"}}, 404, ""),
        ({"spec": QUANTISE, "limits": {"threads": 0}}, 422, "threads"),
        ({"spec": QUANTISE, "priority": 1000}, 400, "priority"),
        ({"spec": QUANTISE, "queue": "a/b"}, 422, "queue"),
        ({"spec": QUANTISE, "queue": ""}, 422, "queue"),
        ({"spec": {"type": "prune", "model": "digits"}}, 403, ""),
    ],
)
def test_what_cannot_be_done_is_refused_naming_the_field(
    yard: Api, body: dict[str, Any], status: int, field: str
) -> None:
    refused = yard.local("POST", "/jobs", body)
    assert (refused.status, refused.json["error"]["field"]) == (status, field), refused.json
    assert yard.local("GET", "/jobs").json["items"] == []


def test_a_job_takes_the_right_to_change_what_is_served_and_to_use_its_model(yard: Api) -> None:
    yard.user("ada", "operator")
    body = {"spec": QUANTISE}
    reads, operates = yard.token("ada", "read"), yard.token("ada", "operate")
    assert yard.ask("POST", "/jobs", body, token=reads).status == 403
    job = yard.ask("POST", "/jobs", body, token=operates)
    assert job.status == 202
    path = f"/jobs/{job.json['id']}"
    for verb, tail in (("GET", ""), ("GET", "/log")):
        assert yard.ask(verb, path + tail, token=reads).status == 200
    for tail in ("/cancel", "/retry"):
        assert yard.ask("POST", path + tail, token=reads).status == 403
    assert yard.ask("GET", path).status == 401


def test_a_job_is_followed_to_its_report(yard: Api, sqlite: Database) -> None:
    path = f"/jobs/{made(yard)['id']}"
    held = claim(sqlite, WORKER)
    assert held is not None
    renew(sqlite, held, JobProgress(0.5, "half"), [CurvePoint("loss", 1, 0.5)], ["hello"])
    found = yard.local("GET", path).json
    assert (found["state"], found["fraction"], found["progress"]) == ("running", 0.5, "half")
    assert yard.local("GET", f"{path}/report").status == 404
    finish(sqlite, held, AttemptDone(ADVICE))
    assert yard.local("GET", f"{path}/log").json == {
        "text": "hello\n",
        "points": [{"type": "point", "curve": "loss", "step": 1.0, "value": 0.5}],
    }
    report = yard.local("GET", f"{path}/report").json
    assert (report["title"], report["verdict"]) == ("Profiled", "advice")


def test_a_failed_job_is_tried_again_and_a_cancelled_one_is_not_cancelled_twice(
    yard: Api, sqlite: Database
) -> None:
    path = f"/jobs/{made(yard)['id']}"
    held = claim(sqlite, WORKER)
    assert held is not None
    finish(sqlite, held, AttemptFailed("no memory"))
    assert yard.local("GET", path).json["reason"] == "no memory"
    assert yard.local("POST", f"{path}/retry").json["state"] == "queued"
    assert yard.local("POST", f"{path}/retry").status == 409
    assert yard.local("POST", f"{path}/cancel").json["state"] == "cancelled"
    assert yard.local("POST", f"{path}/cancel").status == 409


def test_a_version_in_a_folder_is_a_source_and_never_gets_the_result(
    running: Api, tmp_path: Path
) -> None:
    (tmp_path / "models" / "wine" / "3").mkdir(parents=True)
    job = running.local("POST", "/jobs", {"spec": {**QUANTISE, "model": "wine", "version": 3}})
    assert job.json["result"]["model"] == "wine-int8"
    assert job.json["sources"][0] == {
        "role": "source", "model": "wine", "version": 3, "digest": ""
    }  # fmt: skip
    assert str(tmp_path) not in str(job.json)
    for spec, words in (
        ({"version": 4}, "has no version 4; it has 3"),
        ({"version": 3, "result_model": "wine"}, "a model repository folder"),
        ({}, "no version of 'wine' is ready"),
    ):
        refused = running.local("POST", "/jobs", {"spec": {**QUANTISE, "model": "wine", **spec}})
        assert words in refused.json["error"]["message"]


def test_files_that_may_run_code_are_trusted_by_an_administrator_alone(yard: Api) -> None:
    body = {"spec": {"type": "convert", "model": "digits", "trusted": True}}
    otto = {"Authorization": yard.user("otto", "operator")}
    refused = yard.ask("POST", "/jobs", body, headers=otto)
    assert refused.status == 403
    assert "takes the role admin" in refused.message
    untrusted = yard.local("POST", "/jobs", body)
    assert untrusted.status == 403
    assert "by adding the format 'python'" in untrusted.message


def test_a_job_is_tried_again_by_who_might_have_it_made_alone(yard: Api, sqlite: Database) -> None:
    trusted = ConvertSpec(model="digits", version=1, trusted=True)
    path = f"/jobs/{enqueued(sqlite, spec=trusted).id}"
    assert yard.local("POST", f"{path}/cancel").json["state"] == "cancelled"
    otto = {"Authorization": yard.user("otto", "operator")}
    refused = yard.ask("POST", f"{path}/retry", headers=otto)
    assert refused.status == 403
    assert "takes the role admin" in refused.message
    untrusted = yard.local("POST", f"{path}/retry")
    assert untrusted.status == 403
    assert "by adding the format 'python'" in untrusted.message
    assert yard.local("GET", path).json["state"] == "cancelled"


def test_no_more_jobs_are_tried_again_than_may_be_made(sqlite: Database) -> None:
    failed = enqueued(sqlite)
    with sqlite.change(ADA) as tx:
        service.cancel(tx, failed.id)
    enqueued(sqlite)
    rules = AdmissionRules(unfinished_per_principal=1)
    with pytest.raises(TooMany, match="1 jobs of"), sqlite.change(ADA) as tx:
        service.retry(tx, failed.id, rules)

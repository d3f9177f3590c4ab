"""The control API's pipelines: listed, shown, cancelled by those who may operate."""

import pytest

from control.pipelines.service import PushedSteps, begin
from control.sql.database import Actor, Database
from support.admin import Api
from support.deployed import deploy


@pytest.fixture
def pipeline(running: Api, sqlite: Database) -> str:
    """The id of one of `digits` 2."""
    _, push = deploy(sqlite)
    steps = ({"type": "optimise"}, {"type": "quantise"})
    with sqlite.change(Actor("user:ada", "git")) as tx:
        view = begin(tx, PushedSteps("digits", {2: f"{2:064x}"}, steps, push, is_checked=True))
    assert view is not None
    return view.id


def test_a_pipeline_is_listed_and_shown_with_its_steps(running: Api, pipeline: str) -> None:
    found = running.local("GET", f"/pipelines/{pipeline}").json
    assert (found["model"], found["version"], found["state"]) == ("digits", 2, "running")
    assert [one["type"] for one in found["steps"]] == ["optimise", "quantise"]
    assert running.local("GET", "/pipelines?model=digits").json["items"] == [found]
    assert running.local("GET", "/pipelines?state=done").json["items"] == []
    job = running.local("GET", f"/jobs/{found['steps'][0]['job']}").json
    assert (job["pipeline"], job["step"]) == (pipeline, 1)


def test_a_state_that_there_is_not_is_refused(running: Api) -> None:
    refused = running.local("GET", "/pipelines?state=half")
    assert (refused.status, refused.json["error"]["field"]) == (422, "state")
    assert running.local("GET", "/pipelines/none").status == 404


def test_cancelling_takes_the_right_to_operate_and_happens_once(
    running: Api, pipeline: str
) -> None:
    running.user("ada", "operator")
    path = f"/pipelines/{pipeline}/cancel"
    assert running.ask("POST", path, token=running.token("ada", "read")).status == 403
    cancelled = running.ask("POST", path, token=running.token("ada", "operate"))
    assert (cancelled.status, cancelled.json["state"]) == (200, "cancelled")
    assert running.local("POST", path).status == 409

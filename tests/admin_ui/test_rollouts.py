"""Rollouts: listed, begun, watched, told what to do; who may not changes nothing."""

from html import unescape
from typing import Any

import orjson
import pytest

from admin_ui.pages import rollouts
from admin_ui.pages.rollout_points import chart, point_of
from control.rollouts import service
from control.rollouts.route_weights import RolloutRoutes
from control.rollouts.service import TickResult
from control.sql.database import SYSTEM
from support.admin import Api
from support.console import Person, person
from support.control_rollout import report

ROUTE = {"arms": [{"name": "stable", "model": "digits", "version": 1, "weight": 100}]}
PLAN = {"mirror": 0, "steps": "10, 50", "hold": "1h", "min_sample": 1}


@pytest.fixture
def rolled(night: Api) -> Api:
    """A rollout of digits 2 in its first step; `night.rollout` is its id."""
    assert night.local("PUT", "/routes/digits", ROUTE).status == 200
    body = {"name": "digits", "candidate": 2, "plan": PLAN}
    night.rollout = night.local("POST", "/rollouts", body).json["id"]
    walked(night, "step")
    return night


def ticked(api: Api) -> TickResult:
    with api.database.change(SYSTEM) as tx:
        return service.tick(tx, RolloutRoutes(), api.rollout)


def walked(api: Api, phase: str) -> None:
    for number in range(1, 20):
        report(api.database, api.rollout, number * 100, server="server1")
        if ticked(api).view.phase == phase:
            return
    raise AssertionError(f"it never came to {phase}: {ticked(api).view}")


def found(api: Api) -> Any:
    return api.local("GET", f"/rollouts/{api.rollout}").json


def path(api: Api, command: str = "") -> str:
    return f"/rollouts/{api.rollout}{command}"


def test_a_viewer_watches_and_is_offered_nothing_that_changes(rolled: Api) -> None:
    report(rolled.database, rolled.rollout, 5000, 7, "server1")
    vera = person(rolled, "viewer")
    listed = vera.get("/rollouts").text
    assert path(rolled) in listed
    assert "1 → 2" in listed
    page = vera.get(path(rolled))
    assert "<h1>Rollout of digits: version 2</h1>" in page.text
    assert 'aria-current="step"' in page.text
    assert 'action="/rollouts' not in page.text
    for words in ("Guardrails", "Events", "rollout of digits: version 2 is the candidate"):
        assert words in page.text
    twin = vera.get(f"{path(rolled)}.json").json
    del twin["standing"]
    assert twin == found(rolled)
    assert vera.get("/rollouts/nothing").status == 404
    series = orjson.loads(unescape(page.text.split('data-series="')[1].split('"')[0]))
    assert [len(one) for one in series] == [len(series[0])] * 4


def test_no_rollout_yet_says_how_one_begins(night: Api) -> None:
    assert "key: &#34;rollout&#34;" in person(night, "viewer").get("/rollouts").text


def test_a_rollout_is_begun_by_a_form(night: Api) -> None:
    otto = person(night, "operator", "otto")
    form = {"name": "digits", "candidate": "2", "mode": "manual", "steps": "10, 50", "mirror": "0"}
    unrouted = otto.post("/rollouts", form)
    assert unrouted.status == 409
    assert "has no route" in unrouted.text
    night.local("PUT", "/routes/digits", ROUTE)
    for field, value, said in (
        ("candidate", "two", "no whole number"),
        ("candidate", "77", "has no version 77"),
        ("steps", "50, 10", "growing percentages"),
        ("hold", "long", "a duration"),
    ):
        wrong = otto.post("/rollouts", {**form, field: value})
        assert wrong.status == 422, field
        assert f'id="f-rollouts-{field}-wrong"' in wrong.text
        assert said in wrong.text
        assert f'value="{value}"' in wrong.text
    begun = otto.post("/rollouts", form)
    assert begun.status == 303
    one = night.local("GET", begun.headers["location"]).json
    assert (one["candidate"], one["by"], one["plan"]["mode"]) == (2, "user:otto", "manual")
    assert [step["weight"] for step in one["plan"]["steps"]] == [10, 50, 100]


def test_it_is_promoted_paused_and_resumed(rolled: Api) -> None:
    otto = person(rolled, "operator")
    assert "Promote to the next step" in otto.get(path(rolled)).text
    for command, phase, weight in (("promote", "step", 50), ("pause", "paused", 50)):
        form = {"revision": str(found(rolled)["revision"])}
        assert otto.post(path(rolled, f"/{command}"), form).status == 303
        assert (found(rolled)["phase"], found(rolled)["weight"]) == (phase, weight)
    assert "Resume" in otto.get(path(rolled)).text
    stale = otto.post(path(rolled, "/resume"), {"revision": "1"})
    assert stale.status == 412
    assert 'role="alert"' in stale.text
    form = {"revision": str(found(rolled)["revision"])}
    assert otto.post(path(rolled, "/resume"), form).status == 303
    form = {"revision": str(found(rolled)["revision"])}
    assert otto.post(path(rolled, "/promote-full"), form).status == 303
    assert found(rolled)["weight"] == 100


def test_it_is_aborted_only_when_the_name_was_typed(rolled: Api) -> None:
    otto = person(rolled, "operator", "otto")
    wrong = otto.post(path(rolled, "/abort"), {"confirm": "digit"})
    assert wrong.status == 422
    assert "type digits here" in wrong.text
    assert 'value="digit"' in wrong.text
    assert found(rolled)["weight"] == 10
    assert otto.post(path(rolled, "/abort"), {"confirm": "digits"}).status == 303
    assert found(rolled)["weight"] == 0
    arms = rolled.local("GET", "/routes/digits").json["arms"]
    assert [arm["weight"] for arm in arms if arm["name"] == "stable"] == [100]
    rows = rolled.local("GET", "/audit?action=rollout.abort").json["items"]
    assert [(row["actor"], row["via"]) for row in rows] == [("user:otto", "console")]
    walked(rolled, "degraded")
    over = otto.get(path(rolled)).text
    assert "rolled back" in over
    assert "Retry" in over
    assert path(rolled, "/pause") not in over


def test_viewers_and_other_sites_change_nothing(rolled: Api) -> None:
    vera, ada = person(rolled, "viewer"), person(rolled, "admin")
    before = found(rolled)
    form = {"confirm": "digits", "revision": str(before["revision"])}
    form |= {"name": "digits", "candidate": "2"}
    for act in rollouts.ACTS:
        at = act.path.replace("{rollout}", before["id"])
        assert vera.post(at, form).status == 403, at
        assert ada.post(at, form, Origin="http://evil.example").status == 403, at
        assert ada.post(at, {**form, "token": "0" * 64}).status == 403, at
        assert Person(rolled).post(at, form).status in (303, 401), at
    assert found(rolled) == before


def test_the_rail_says_what_is_past_and_what_is_ahead() -> None:
    steps = [{"weight": one, "hold": 1, "min_sample": 1} for one in (10, 50, 100)]
    plan = {"mode": "progressive", "mirror": 5, "steps": steps}
    row = {"plan": plan, "phase": "paused", "step": 2, "weight": 50, "mirror": 0}
    told = rollouts.rail(row)
    assert [one["label"] for one in told] == [
        "Prewarm",
        "Mirror",
        "10 %",
        "50 %",
        "100 %",
        "Healthy",
    ]
    assert [one["state"] for one in told] == ["past"] * 3 + ["here"] + ["ahead"] * 2
    done = rollouts.rail({**row, "phase": "healthy", "weight": 100})
    assert {one["state"] for one in done} == {"past"}
    mirrored = rollouts.rail({**row, "step": 0, "weight": 0, "mirror": 5})
    assert mirrored[1]["state"] == "here"


def test_the_step_in_which_it_was_rolled_back_says_so() -> None:
    steps = [{"weight": one, "hold": 1, "min_sample": 1} for one in (10, 50, 100)]
    plan = {"mode": "progressive", "mirror": 0, "steps": steps}
    row = {"plan": plan, "phase": "degraded", "step": 2, "weight": 0, "mirror": 0}
    assert [one["state"] for one in rollouts.rail(row)][:3] == ["past", "past", "failed"]


def test_a_chart_has_the_arms_and_what_the_candidate_may_have() -> None:
    arm = {"requests": 200, "errors": 1, "p99_s": 0.02}
    none = {"requests": 0, "errors": 0, "p99_s": None}
    moment = {
        "at": "2026-11-24T12:00:00Z",
        "phase": "step",
        "weight": 5,
        "mirror": 0,
        "arms": {"stable": arm, "candidate": none, "mirrored": arm},
    }
    moments, stable, most, tried = chart([point_of(moment)] * 2, "errors", 0.5, 1.0)
    assert len(moments) == 2
    assert (stable[0], most[0], tried[0]) == (0.5, 1.0, None)
    assert chart([point_of(moment)], "p99_ms", 0.0, 1.25)[2] == [25.0]


def test_a_finished_rollout_shows_what_was_seen_when_it_was_decided(rolled: Api) -> None:
    otto = person(rolled, "operator")
    report(rolled.database, rolled.rollout, 5_000, 2_500, server="server1")
    while ticked(rolled).moved:
        pass
    page = unescape(otto.get(path(rolled)).text)
    standing = rolled.local("GET", f"/rollouts/{rolled.rollout}/standing").json
    events = rolled.local("GET", f"/events?subject=rollout:{rolled.rollout}&limit=100").json[
        "items"
    ]
    abort = next(one for one in events if one["kind"] == "rollout.abort")
    assert abort["data"]["verdicts"] == standing["verdicts"]
    failed = next(one for one in standing["verdicts"] if one["outcome"] == "fail")
    assert failed["words"] in found(rolled)["reason"]
    assert "Guardrails, when it was decided" in page
    assert page.count(f"<td>{failed['words']}</td>") == 1
    assert 'class="failed"' in page
    assert str(standing["arms"]["candidate"]["requests"]) in page

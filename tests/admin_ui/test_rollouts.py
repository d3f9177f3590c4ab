"""Rollouts: listed, begun, watched, told what to do; who may not changes nothing."""

from html import unescape
from typing import Any

import orjson
import pytest

from admin_ui.pages import rollouts
from admin_ui.pages.rollout_evidence import (
    evidence_charts,
    failed_moment,
    failed_span,
    figures_of,
    history_of,
    moment_of,
    move_markers,
)
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
    for words in ("Guardrails", "History", "Version 2 is the candidate"):
        assert words in page.text
    twin = vera.get(f"{path(rolled)}.json").json
    del twin["standing"]
    assert twin == found(rolled)
    assert vera.get("/rollouts/nothing").status == 404
    series = orjson.loads(unescape(page.text.split('data-series="')[1].split('"')[0]))
    assert [len(one) for one in series] == [len(series[0])] * 4
    csv = vera.get(f"/chart.csv?at={path(rolled)}&chart=traffic-errors").text
    assert csv.startswith("from,stable (%),candidate (%),limit (%)")
    assert len(csv.splitlines()) == len(series[0]) + 1


def test_no_rollout_yet_says_how_one_begins(night: Api) -> None:
    assert "key: &#34;rollout&#34;" in person(night, "viewer").get("/rollouts").text


def test_a_rollout_is_begun_by_a_form(night: Api) -> None:
    otto = person(night, "operator", "otto")
    form = {"candidate": "digits:2", "mode": "manual", "steps": "10, 50", "mirror": "0"}
    unrouted = otto.post("/rollouts", form)
    assert unrouted.status == 409
    assert "has no route" in unrouted.text
    assert "No route has another version to move to" in unrouted.text
    night.local("PUT", "/routes/digits", ROUTE)
    shown = otto.get("/rollouts").text
    assert '<optgroup label="digits, now version 1">' in shown
    assert '<option value="digits:2" selected>version 2, ' in shown
    assert 'value="digits:1"' not in shown
    for field, value, said in (
        ("candidate", "digits", "choose the route and the version"),
        ("candidate", "digits:77", "has no version 77"),
        ("steps", "50, 10", "growing percentages"),
        ("hold", "long", "a duration"),
    ):
        wrong = otto.post("/rollouts", {**form, field: value})
        assert wrong.status == 422, field
        assert f'id="f-rollouts-{field}-wrong"' in wrong.text
        assert said in wrong.text
    begun = otto.post("/rollouts", form)
    assert begun.status == 303
    one = night.local("GET", begun.headers["location"]).json
    assert (one["candidate"], one["by"], one["plan"]["mode"]) == (2, "user:otto", "manual")
    assert [step["weight"] for step in one["plan"]["steps"]] == [10, 50, 100]


def test_versions_that_can_serve_are_offered_for_each_route() -> None:
    def route(name: str, **arm: Any) -> dict[str, Any]:
        return {"name": name, "arms": [{"model": "digits", "version": 0, "alias": None, **arm}]}

    pushed = {"digits": {"versions": [{"version": one} for one in (1, 2, 3)]}}
    states = {2: "READY", 3: "FAILED", 4: "READY"}
    loads = [{"model": "digits", "version": key, "state": one} for key, one in states.items()]
    routes = [route("digits", version=1), route("shop", alias="champion")]
    (own, choices), (shop, others) = rollouts.candidates_of(routes, pushed, loads)
    assert own == "digits, now version 1"
    assert choices == [
        ("digits:4", "version 4, ready"),
        ("digits:2", "version 2, ready"),
    ]
    assert shop == "shop, now digits @champion"
    assert others[-1] == ("shop:1", "version 1, will be loaded first")
    assert rollouts.candidates_of([route("faces", model="faces", version=1)], {}, []) == []


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


def test_a_rollout_says_at_once_what_its_plan_can_tell(night: Api) -> None:
    assert night.local("PUT", "/routes/digits", ROUTE).status == 200
    made = night.local("POST", "/rollouts", {"name": "digits", "candidate": 2, "plan": PLAN}).json
    told = made["outlook"]["words"]
    assert "no request came in the last 15 minutes" in told[0]
    assert made["outlook"] == night.local("GET", f"/rollouts/{made['id']}/outlook").json
    page = unescape(person(night, "viewer").get(f"/rollouts/{made['id']}").text)
    assert "What this plan can tell" in page
    assert told[-1] in page


def test_viewers_and_other_sites_change_nothing(rolled: Api) -> None:
    vera, ada = person(rolled, "viewer"), person(rolled, "admin")
    before = found(rolled)
    form = {"confirm": "digits", "revision": str(before["revision"])}
    form |= {"candidate": "digits:2"}
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


ARM = {"requests": 200, "errors": 1, "p99_s": 0.02}
NONE = {"requests": 0, "errors": 0, "p99_s": None}
TERMS = {"error_margin": 0.5, "latency_ratio": 1.25}


def moment(second: int, move: str = "", words: str = "", **facts: Any) -> dict[str, Any]:
    arms = {"stable": ARM, "candidate": NONE, "mirrored": ARM}
    usual = {"phase": "step", "step": 1, "weight": 5, "mirror": 0, "arms": arms}
    at = f"1970-01-01T00:00:{second:02}.000Z"
    return {**usual, "at": at, "move": move, "words": words, **facts}


def test_a_chart_has_the_arms_and_what_the_candidate_may_have() -> None:
    errors, p99, answered, share = evidence_charts([moment(1), moment(2)], TERMS)
    assert errors.lines == ["stable", "candidate", "limit"]
    assert [column[0] for column in errors.columns] == [0.5, None, 1.0]
    assert [column[1] for column in p99.columns] == [20.0, None, 25.0]
    assert [column[0] for column in answered.columns] == [200, 0]
    assert (share.lines, share.columns) == (["candidate"], [[5, 5]])
    assert errors.bands == [(2, 0)]


def test_while_it_is_mirrored_its_copies_stand_for_the_candidate() -> None:
    errors, _, _, share = evidence_charts([moment(1, weight=0, mirror=5)], TERMS)
    assert [column[0] for column in errors.columns] == [0.5, 0.5, 1.0]
    assert share.lines == ["candidate", "mirrored"]


def test_the_history_names_each_move_once_and_marks_the_one_that_failed() -> None:
    reason = "rolled back: 3 % of its requests failed"
    moments = [
        moment(1, "start", "version 2 is the candidate"),
        moment(2, "step", "step 1 of 2: 5 % of the traffic"),
        moment(3),
        moment(4, "pause", "paused (signal): 1 %"),
        moment(5, "abort", reason),
        moment(6, "degrade", reason),
    ]
    otto = {"kind": "rollout.start", "at": moments[0]["at"], "actor": "user:otto"}
    history = history_of(moments, [otto], reason)
    assert [one.letter for one in history] == ["", "A", "B", "C"]
    assert history[0].words == "Version 2 is the candidate"
    assert history[-1].words == "Rolled back"
    assert [one.failed for one in history] == [False, False, False, True]
    assert history[0].actor == "user:otto"
    assert [(one.at, one.bad) for one in move_markers(history)] == [
        (2, False),
        (4, False),
        (5, True),
    ]
    assert failed_span(moments) == (2, 5)
    assert failed_moment(moments) is moments[4]
    assert failed_span(moments[:3]) is None


def test_how_it_stands_now_is_a_moment_without_a_move() -> None:
    row = {"phase": "step", "step": 1, "weight": 5, "mirror": 0, "name": "digits"}
    now = moment_of({"arms": {"stable": ARM}}, row, "1970-01-01T00:00:01.000Z")
    assert (now["move"], now["weight"], now["arms"]) == ("", 5, {"stable": ARM})


def test_shares_are_told_in_percent_and_ratios_as_they_are() -> None:
    numbers = {"candidate": 0.01354, "control": 0.0029, "lower": 0.0065, "upper": None}
    assert figures_of({"guardrail": "errors", "numbers": numbers}) == [
        "candidate 1.35 %",
        "stable 0.29 %",
        "worse by at least 0.65 points",
        "worse by at most unknown",
    ]
    assert figures_of({"guardrail": "p99", "numbers": {"ratio": 1.25}}) == ["ratio 1.25"]


def test_the_step_in_which_it_failed_is_known_after_its_weight_has_gone() -> None:
    steps = [{"weight": one, "hold": 1, "min_sample": 1} for one in (10, 50, 100)]
    plan = {"mode": "progressive", "mirror": 5, "steps": steps}
    row = {"plan": plan, "phase": "degraded", "step": 0, "weight": 0, "mirror": 0}
    failed = moment(9, "abort", phase="paused", step=0, weight=0, mirror=5)
    assert [one["state"] for one in rollouts.rail(row, failed)][:3] == ["past", "failed", "ahead"]


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
    assert page.count(failed["words"]) == 1
    assert "as said above" in page
    assert 'class="failed"' in page
    assert "data-failed=" in page
    series = orjson.loads(page.split('data-series="')[1].split('"')[0])
    tried = standing["arms"]["candidate"]
    assert f"{tried['requests']:,}" in page
    assert series[2][-1] == pytest.approx(tried["errors"] * 100 / tried["requests"], abs=1e-4)

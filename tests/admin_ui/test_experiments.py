"""Experiments: planned, started, looked at, stopped, concluded; who may not changes nothing."""

import pytest

from admin_ui.pages import experiments
from admin_ui.pages.experiment_charts import interval_charts, scaled
from admin_ui.services import ControlApiError
from support.admin import Api
from support.console import Person, person

PATH = "/experiments/colour"
ARMS = [
    {"name": "a", "model": "digits", "version": 1, "weight": 50},
    {"name": "b", "model": "digits", "version": 2, "weight": 50},
]
FORM = {"name": "colour", "route": "shop", "metrics": "bought proportion up 0.01", "horizon": ""}


@pytest.fixture
def shop(night: Api) -> Api:
    route = {"arms": ARMS, "unit": "header:x-user"}
    assert night.local("PUT", "/routes/shop", route).status == 200
    return night


def planned(api: Api) -> Person:
    otto = person(api, "operator", "otto")
    made = otto.post("/experiments", FORM)
    assert (made.status, made.headers["location"]) == (303, PATH), made.text[-1500:]
    return otto


def told(api: Api) -> dict[str, object]:
    return dict(api.local("GET", PATH).json)


def test_an_experiment_is_planned_started_stopped_and_concluded(shop: Api) -> None:
    otto = planned(shop)
    page = otto.get(PATH).text
    assert "Start experiment" in page
    assert "Nobody has seen the experiment yet." in page
    assert "waiting</span> for units" in page
    for step, state in (("start", "running"), ("stop", "stopped"), ("conclude", "concluded")):
        form = {"revision": str(told(shop)["revision"]), "decision": "ship <b>: it sells"}
        assert otto.post(f"{PATH}/{step}", form).status == 303, step
        assert told(shop)["state"] == state
    over = otto.get(PATH).text
    assert "ship &lt;b&gt;: it sells" in over
    assert f'action="{PATH}' not in over
    assert otto.get(f"{PATH}.json").json["analysis"]["control"] == "a"
    assert 'href="/experiments/colour"' in otto.get("/experiments?state=concluded").text
    rows = shop.local("GET", "/audit?action=experiment.").json["items"]
    assert {(row["actor"], row["via"]) for row in rows} == {("user:otto", "console")}


def test_what_is_wrong_with_a_plan_stands_beside_its_field(shop: Api) -> None:
    otto = person(shop, "operator")
    for field, value, said in (
        ("name", "Bad Name", "cannot name an experiment"),
        ("metrics", "bought", "line 1"),
        ("metrics", "bought sometimes up 0.01", "sometimes"),
        ("horizon", "many", "no whole number"),
    ):
        found = otto.post("/experiments", {**FORM, field: value})
        assert found.status == 422, (field, value)
        assert f'id="f-experiments-{field}-wrong"' in found.text, (field, found.text[-2000:])
        assert said in found.text
        assert value in found.text
    assert otto.post("/experiments", {**FORM, "route": "nowhere"}).status in (404, 409, 422)
    assert shop.local("GET", "/experiments").json["items"] == []


def test_a_draft_goes_only_when_its_name_was_typed(shop: Api) -> None:
    otto = planned(shop)
    assert otto.post(f"{PATH}/delete", {"revision": "1", "confirm": "color"}).status == 422
    assert otto.post(f"{PATH}/delete", {"revision": "1", "confirm": "colour"}).status == 303
    assert otto.get(PATH).status == 404
    assert "modelyard route set shop" in otto.get("/experiments").text


def test_viewers_and_other_sites_change_nothing(shop: Api) -> None:
    planned(shop)
    vera, ada = person(shop, "viewer"), person(shop, "admin")
    assert f'action="{PATH}' not in vera.get(PATH).text
    form = {**FORM, "name": "other", "confirm": "colour", "revision": "1", "decision": "x"}
    for act in experiments.ACTS:
        path = act.path.replace("{experiment}", "colour")
        assert vera.post(path, form).status == 403, path
        assert ada.post(path, form, Origin="http://evil.example").status == 403, path
        assert ada.post(path, {**form, "token": "0" * 64}).status == 403, path
        assert Person(shop).post(path, form).status in (303, 401), path
    assert (told(shop)["state"], told(shop)["revision"]) == ("draft", 1)


def test_metrics_are_read_line_by_line() -> None:
    found = experiments.read_metrics("bought proportion up 0.01\n\nslow quantile down 0.1 0.95\n")
    assert [one["name"] for one in found] == ["bought", "slow"]
    assert found[1]["quantile"] == 0.95
    for bad in ("bought", "bought proportion up much", "a b c 1 2 3"):
        with pytest.raises(ControlApiError) as caught:
            experiments.read_metrics(bad)
        assert caught.value.field == "metrics"


def test_the_intervals_of_all_arms_of_a_metric_are_in_one_chart() -> None:
    metrics = [{"name": "bought", "kind": "proportion"}]
    at = [f"2026-11-24T0{hour}:00:00.000Z" for hour in (1, 2)]
    early = {"at": at[0], "units": 10, "estimate": 0.02, "lower": -0.1, "upper": None}
    late = {"at": at[1], "units": 30, "estimate": 0.01, "lower": 0.005, "upper": 0.015}
    series = {("bought", "b"): [early, late], ("bought", "c"): [late]}
    chart, units = interval_charts(metrics, series, "a")
    assert chart.lines == ["b", "b lower", "b upper", "c", "c lower", "c upper"]
    assert (chart.unit, chart.caption) == (
        "points",
        "bought: difference from a, with its interval",
    )
    assert [list(column) for column in chart.columns[:4]] == [
        [2.0, 1.0],
        [-10.0, 0.5],
        [None, 1.5],
        [None, 1.0],
    ]
    assert chart.bands == [(2, 1), (5, 4)]
    assert units.columns == [[10.0, 30.0]]


def test_a_metric_with_many_arms_has_several_charts_and_none_without_points() -> None:
    point = {"at": "2026-11-24T01:00:00.000Z", "units": 1, "estimate": 1.1, "lower": 1, "upper": 2}
    series = {("slow", f"arm{number}"): [point] for number in range(4)}
    charts = interval_charts([{"name": "slow", "kind": "quantile"}], series, "a")
    assert [one.id for one in charts] == ["traffic-slow", "traffic-slow-2", "traffic-units"]
    assert interval_charts([{"name": "slow", "kind": "quantile"}], {("slow", "b"): []}, "a") == []
    assert scaled("quantile", 1.1) == pytest.approx(10.0)
    assert scaled("mean", 1.5) == 1.5

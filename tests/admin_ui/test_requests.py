"""Requests in the console: found by what is known of them, sampled, told in words, and who may."""

import pytest

from admin_ui.pages.requests import arm_name, summed
from support.admin import Api
from support.console import person


def test_an_operator_samples_a_model_and_stops(night: Api) -> None:
    otto = person(night, "operator", "otto")
    assert "Sampling is off" in otto.get("/requests").text
    form = {"model": "digits", "minutes": "15", "percent": "50"}
    made = otto.post("/requests/sampling", form)
    assert (made.status, made.headers["location"]) == (303, "/requests?model=digits")
    shown = otto.get("/requests")
    assert "50 %" in shown.text
    assert "shapes and statistics" in shown.text
    assert 'name="values"' not in shown.text
    assert otto.post("/requests/sampling/digits/stop", {}).status == 303
    (standing,) = night.local("GET", "/sampling").json["items"]
    assert (standing["active"], standing["by"]) == (False, "user:otto")
    audit = night.local("GET", "/audit?action=sampling.").json["items"]
    assert [(row["actor"], row["via"]) for row in audit] == [("user:otto", "console")] * 2


def test_what_is_wrong_stands_beside_its_field(night: Api) -> None:
    otto = person(night, "operator", "otto")
    usual = {"model": "digits", "minutes": "15", "percent": "100"}
    for field, text in (("model", ""), ("percent", "much"), ("percent", "0"), ("minutes", "x")):
        found = otto.post("/requests/sampling", {**usual, field: text})
        assert found.status == 422, (field, text)
        assert f'id="f-requests-sampling-{field}-wrong"' in found.text, (field, text)
    unknown = otto.post("/requests/sampling", {**usual, "model": "digitz"})
    assert unknown.status == 404
    assert "no server has a model" in unknown.text
    refused = otto.post("/requests/sampling", {**usual, "values": "yes"})
    assert refused.status == 403


def test_a_viewer_is_not_offered_them_and_is_refused(night: Api) -> None:
    vera = person(night, "viewer", "vera")
    assert 'href="/requests"' not in vera.get("/").text
    assert vera.get("/requests").status == 403
    form = {"model": "digits", "minutes": "15", "percent": "50"}
    assert vera.post("/requests/sampling", form).status == 403
    assert night.local("GET", "/sampling").json["items"] == []


def test_statistics_are_told_with_their_names() -> None:
    assert summed({"about": None}) == [("", "too few values to sum up")]
    about = {"of": 4096, "not_finite": 2, "least": -1.0, "most": 2.5, "mean": 0.25}
    assert summed({"about": about}) == [
        ("of the first", "4,096"),
        ("least", "-1"),
        ("mean", "0.25"),
        ("most", "2.5"),
        ("NaN or infinite", "2"),
    ]
    text = {"of": 9, "shortest_bytes": 1, "longest_bytes": 30}
    assert ("longest", "30 B") in summed({"about": text})


@pytest.mark.parametrize(
    ("query", "wrong"),
    [
        ("version=x", "Version is &#39;x&#39;; it is a whole number from 1"),
        ("least_ms=-1", "Took at least is &#39;-1&#39;"),
        ("outcome=fine", "outcome is &#39;fine&#39;; it is one of ok, failed, refused, cancelled"),
        ("order=any", "order is &#39;any&#39;; it is one of newest, slowest"),
    ],
)
def test_a_filter_that_cannot_be_is_told(night: Api, query: str, wrong: str) -> None:
    found = person(night, "operator", "otto").get(f"/requests?{query}")
    assert found.status == 200
    assert wrong in found.text


def test_an_arm_is_told_by_its_name() -> None:
    assert arm_name("digits@3;candidate;rollout=ab") == "candidate"
    assert arm_name("digits@3;stable") == "stable"
    assert arm_name("") == ""

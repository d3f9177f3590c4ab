"""Routes over the API: made, weighed, killed, explained, deleted."""

import pytest

from support.admin import Api
from support.control import told
from support.deployed import deploy

ARMS = [
    {"name": "stable", "model": "digits", "version": 1, "weight": 75},
    {"name": "candidate", "model": "digits", "version": 2, "weight": 25},
]
RULE = {"header": "X-Tester", "value": "yes", "arm": "candidate"}


@pytest.fixture(autouse=True)
def numbers(anywhere: Api) -> None:
    deploy(anywhere.database)
    terms = {"arms": ARMS, "unit": "header:x-user", "salt": "s", "matches": [RULE]}
    made = anywhere.local("PUT", "/routes/numbers", terms, {"If-None-Match": "*"})
    assert (made.status, made.headers["location"]) == (200, "/api/v1/routes/numbers")


def test_a_route_is_shown_as_it_was_set_and_changed_against_its_revision(anywhere: Api) -> None:
    shown = anywhere.local("GET", "/routes/numbers")
    assert [(arm["name"], arm["weight"]) for arm in shown.json["arms"]] == [
        ("stable", 75),
        ("candidate", 25),
    ]
    assert shown.json["matches"][0]["header"] == "x-tester"
    etag = {"If-Match": shown.headers["etag"]}
    moved = anywhere.local("PATCH", "/routes/numbers", {"weights": {"candidate": 0.01}}, etag)
    assert [arm["weight"] for arm in moved.json["arms"]] == [99.99, 0.01]
    again = anywhere.local("PATCH", "/routes/numbers", {"weights": {"candidate": 1}}, etag)
    assert again.status == 412
    assert anywhere.local("GET", "/routes").json["items"] == [moved.json]
    assert anywhere.local("DELETE", "/routes/numbers").status == 204
    assert anywhere.local("GET", "/routes/numbers").status == 404


def test_the_kill_switch_is_turned_on_and_released(anywhere: Api) -> None:
    assert anywhere.local("POST", "/routes/numbers/kill", {}).json["only"] == "stable"
    found = anywhere.local("GET", "/routes/numbers/explain?unit=ada").json
    assert found["reason"] == "the kill switch sends everything to 'stable'"
    assert anywhere.local("DELETE", "/routes/numbers/kill").json["only"] is None
    kinds = [kind for kind, subject in told(anywhere.database) if subject == "route:numbers"]
    assert kinds == ["route.created", "route.killed", "route.unkilled"]


def test_what_a_unit_would_get_is_explained(anywhere: Api) -> None:
    def explained(query: str) -> dict[str, object]:
        found: dict[str, object] = anywhere.local("GET", f"/routes/numbers/explain{query}").json
        return found

    by_unit = explained("?unit=ada")
    assert by_unit == explained("?header=X-User:%20ada")
    share = {"stable": "75 %", "candidate": "25 %"}[str(by_unit["arm"])]
    assert by_unit["reason"] == (
        f"its bucket is {by_unit['bucket']} of 10000, and '{by_unit['arm']}' owns {share} of them"
    )
    ruled = explained("?unit=ada&header=x-tester:yes")
    assert (ruled["arm"], ruled["version"], ruled["bucket"]) == ("candidate", 2, None)
    assert ruled["label"] == "digits@2;candidate"
    drawn = explained("")
    assert (drawn["arm"], drawn["label"]) == (None, None)
    assert "drawn anew, 75 % to 'stable', 25 % to 'candidate'" in str(drawn["reason"])


def test_what_cannot_be_is_told_with_its_field(anywhere: Api) -> None:
    for verb, path, body, field in (
        ("PUT", "/routes/x", {"arms": ARMS[:1]}, "arms"),
        ("PUT", "/routes/x", {"arms": "digits"}, "arms"),
        ("PUT", "/routes/x", {"arms": ["digits"]}, "arms"),
        ("PUT", "/routes/x", {"arms": ARMS, "unit": "cookie:a"}, "unit"),
        ("PATCH", "/routes/numbers", {"weights": {"candidate": "many"}}, "weights"),
        ("PATCH", "/routes/numbers", {"weights": {"candidate": 0.005}}, "weights"),
        ("POST", "/routes/numbers/kill", {"arm": "nobody"}, "arm"),
    ):
        told_of = anywhere.local(verb, path, body)
        assert (told_of.status, told_of.json["error"]["field"]) in (
            (400, field),
            (422, field),
        ), (path, body, told_of.json)
    assert anywhere.local("GET", "/routes/numbers/explain?header=odd").status in (400, 422)

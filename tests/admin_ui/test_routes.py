"""Routes: shown, made, weighed, switched, explained; who may not changes nothing."""

import pytest

from admin_ui.pages import routes
from support.admin import Api
from support.console import Person, person

PATH = "/routes/shop"
ARMS = [
    {"name": "stable", "model": "digits", "version": 1, "weight": 90},
    {"name": "next", "model": "digits", "version": 2, "weight": 10},
]
ROUTE = {"arms": ARMS, "unit": "header:x-user", "salt": "s"}
FORM = {
    "revision": "1", "unit": "key", "salt": "s",
    "arm.0.name": "stable", "arm.0.target": "digits:1", "arm.0.weight": "75",
    "arm.1.name": "next", "arm.1.target": "digits@champion", "arm.1.weight": "25",
    "matches": "x-user: beta* -> next", "mirrors": "next 5",
}  # fmt: skip


@pytest.fixture
def shop(night: Api) -> Api:
    assert night.local("PUT", "/routes/shop", ROUTE).status == 200
    assert night.local("PUT", "/models/digits/aliases/champion", {"version": 2}).status in (
        200,
        201,
    )
    return night


def weights(api: Api) -> dict[str, float]:
    found = api.local("GET", "/routes/shop").json
    return {arm["name"]: arm["weight"] for arm in found["arms"]}


def test_a_viewer_sees_the_routes_and_no_form_that_changes_them(shop: Api) -> None:
    vera = person(shop, "viewer")
    listed = vera.get("/routes").text
    assert 'href="/routes/shop"' in listed
    assert "next 10 % → digits:2" in listed
    one = vera.get(PATH)
    assert "<h1>shop</h1>" in one.text
    assert 'action="/routes/shop' not in one.text
    assert vera.get(f"{PATH}.json").json == shop.local("GET", "/routes/shop").json
    assert vera.get("/routes/nothing").status == 404


def test_no_route_yet_says_how_to_make_one(night: Api) -> None:
    assert (
        "modelyard route set digits --arm stable=digits:1=100"
        in person(night, "viewer").get("/routes").text
    )


def test_a_route_is_made_with_one_arm(night: Api) -> None:
    otto = person(night, "operator")
    wrong = otto.post("/routes", {"name": "shop", "target": "digits"})
    assert wrong.status == 422
    assert 'id="f-routes-target-wrong"' in wrong.text
    assert 'value="shop"' in wrong.text
    unknown = otto.post("/routes", {"name": "shop", "target": "digits:77"})
    assert unknown.status in (404, 422)
    assert 'id="f-routes-target-wrong"' in unknown.text
    made = otto.post("/routes", {"name": "shop", "target": "digits:2"})
    assert made.headers["location"] == PATH
    assert weights(night) == {"stable": 100}
    assert otto.post("/routes", {"name": "shop", "target": "digits:1"}).status == 412


def test_weights_are_set_only_when_they_are_100_together(shop: Api) -> None:
    otto = person(shop, "operator")
    form = {"revision": "1", "weight.stable": "60", "weight.next": "30"}
    short = otto.post(f"{PATH}/weights", form)
    assert short.status == 422
    assert "90 % together, not 100 %" in short.text
    assert 'name="weight.next" type="number" min="0" max="100" step="0.01" value="30"' in short.text
    for bad in ("", "x", "nan", "inf", "-1", "101", "1.234"):
        found = otto.post(f"{PATH}/weights", {**form, "weight.next": bad})
        assert found.status == 422, bad
        assert "at most two decimals" in found.text
    assert weights(shop) == {"stable": 90, "next": 10}
    done = otto.post(f"{PATH}/weights", {**form, "weight.next": "40"})
    assert done.status == 303
    assert weights(shop) == {"stable": 60, "next": 40}
    assert otto.post(f"{PATH}/weights", {**form, "weight.next": "40"}).status == 412
    rows = shop.local("GET", "/audit?action=route.").json["items"]
    assert ("route.changed", "user:operator", "console") in {
        (row["action"], row["actor"], row["via"]) for row in rows
    }


def test_arms_rules_and_mirrors_are_changed_whole(shop: Api) -> None:
    otto = person(shop, "operator")
    assert otto.post(f"{PATH}/change", FORM).status == 303
    found = shop.local("GET", "/routes/shop").json
    assert found["arms"][1]["alias"] == "champion"
    assert found["unit"] == "key"
    rule = {"header": "x-user", "value": "beta", "prefix": True, "arm": "next"}
    assert found["matches"] == [rule]
    assert found["mirrors"] == [{"arm": "next", "percent": 5}]
    assert "x-user: beta* -&gt; next" in otto.get(PATH).text


WRONG = [
    ("arm.1.target", "digits", "give MODEL:VERSION"),
    ("arm.1.weight", "30", "105 % together"),
    ("arm.1.name", "Bad Name", "cannot name an arm"),
    ("matches", "x-user beta", "line 1"),
    ("matches", "x-user: beta -> nobody", "nobody"),
    ("mirrors", "next", "line 1"),
    ("mirrors", "next 0", "more than 0"),
    ("unit", "cookie:x", "cookie:x"),
]


def test_what_is_wrong_with_a_change_stands_beside_it(shop: Api) -> None:
    otto = person(shop, "operator")
    for field, value, said in WRONG:
        found = otto.post(f"{PATH}/change", {**FORM, field: value})
        assert found.status == 422, (field, value)
        wrong = found.text.split('class="wrong"')
        assert len(wrong) == 2, (field, value)
        assert said in wrong[1][:400], (field, value)
        assert value.replace(">", "&gt;") in found.text, (field, value)
    assert weights(shop) == {"stable": 90, "next": 10}


def test_the_kill_switch_is_turned_on_and_released(shop: Api) -> None:
    otto = person(shop, "operator")
    assert otto.post(f"{PATH}/kill", {"revision": "1", "arm": "next"}).status == 303
    assert "every request goes to next" in otto.get(PATH).text
    assert "all to next" in otto.get("/routes").text
    assert otto.post(f"{PATH}/release", {"revision": "2"}).status == 303
    assert shop.local("GET", "/routes/shop").json["only"] is None


def test_what_a_user_would_get_is_told_with_its_reason(shop: Api) -> None:
    vera = person(shop, "viewer")
    found = vera.get(f"{PATH}?unit=anna").text
    assert "its bucket is" in found
    assert 'value="anna"' in found
    wrong = vera.get(f"{PATH}?header=nonsense").text
    assert "give NAME: VALUE" in wrong


def test_a_route_goes_only_when_its_name_was_typed(shop: Api) -> None:
    otto = person(shop, "operator")
    assert otto.post(f"{PATH}/delete", {"revision": "1", "confirm": "sho"}).status == 422
    assert shop.local("GET", "/routes/shop").status == 200
    assert otto.post(f"{PATH}/delete", {"revision": "1", "confirm": "shop"}).status == 303
    assert shop.local("GET", "/routes/shop").status == 404


def test_viewers_and_other_sites_change_nothing(shop: Api) -> None:
    vera, ada = person(shop, "viewer"), person(shop, "admin")
    weights_form = {"weight.stable": "50", "weight.next": "50"}
    form = {**FORM, **weights_form, "confirm": "shop", "name": "other", "target": "digits:1"}
    for act in routes.ACTS:
        path = act.path.replace("{route}", "shop")
        assert vera.post(path, form).status == 403, path
        assert ada.post(path, form, Origin="http://evil.example").status == 403, path
        assert ada.post(path, {**form, "token": "0" * 64}).status == 403, path
        assert Person(shop).post(path, form).status in (303, 401), path
    assert shop.local("GET", "/routes/shop").json["revision"] == 1
    assert shop.local("GET", "/routes").json["items"][1:] == []

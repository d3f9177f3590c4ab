"""Every screen over plain HTTP: who sees it, what it says, its twin, and its headers."""

import re
import shlex
from html import unescape

import pytest

from admin_ui.console import ACTS, SCREENS
from admin_ui.headers import GUARDS
from admin_ui.text import link
from control import loads
from control.access.tokens import create_token
from control.sql.database import SYSTEM, Actor
from server.cli.main import make_parser
from support.admin import Api
from support.console import Person, person

TITLES = {
    "/": "Overview",
    "/models": "Models",
    "/models/{model}": "digits",
    "/models/{model}/aliases/{alias}": "digits@champion",
    "/models/{model}/versions/{version}": "digits version 2",
    "/pushes": "Pushes",
    "/pushes/{push}": "Push to vision",
    "/repositories": "Repositories",
    "/repositories/{repository}": "vision",
    "/servers": "Servers and memory",
    "/requests": "Requests",
    "/jobs": "Jobs",
    "/notifications": "Notifications",
    "/notifications/{webhook}": "on-call",
    "/access": "Access",
    "/access/users/{user}": "iris",
    "/access/tokens/{token}": "laptop",
    "/audit": "Audit",
    "/settings": "Settings",
}
REFUSED = {
    "viewer": {
        "/audit",
        "/settings",
        "/requests",
        "/access/users/{user}",
        "/access/tokens/{token}",
    },
    "operator": {"/settings", "/access/users/{user}", "/access/tokens/{token}"},
    "admin": set(),
}


@pytest.fixture
def names(night: Api) -> dict[str, str]:
    """What the paths' parameters are in `night`."""
    night.user("iris", "admin")
    with night.database.change(SYSTEM) as tx:
        token = create_token(tx, "iris", "laptop", ["read"]).view.id
    night.local("PUT", "/models/digits/aliases/champion", {"version": 1})
    hook = {"name": "on-call", "url": "https://hooks.example.com/x"}
    night.local("POST", "/webhooks", hook)
    push = night.local("GET", "/pushes").json["items"][0]["id"]
    return {
        "model": "digits",
        "version": "2",
        "alias": "champion",
        "push": push,
        "repository": "vision",
        "webhook": "on-call",
        "user": "iris",
        "token": token,
    }


def test_every_screen_has_a_title_here() -> None:
    """Those of other files' screens are asked there."""
    mine = {screen.path for screen in SCREENS}
    assert set(TITLES) <= mine


def test_every_screen_is_shown_to_an_admin(night: Api, names: dict[str, str]) -> None:
    ada = person(night, "admin", "ada")
    for path, title in TITLES.items():
        found = ada.get(path.format(**names))
        assert found.status == 200, (path, found.text[-500:])
        heading = re.search(r"<h1>(.*?)</h1>", found.text)
        assert heading, path
        assert heading[1] == title
        assert f"<title>{title} · Modelyard</title>" in found.text


@pytest.mark.parametrize("role", ["viewer", "operator", "admin"])
def test_who_may_not_is_told_what_it_takes(night: Api, names: dict[str, str], role: str) -> None:
    one = person(night, role)
    refused = {path for path in TITLES if one.get(path.format(**names)).status in (403, 404)}
    assert refused == REFUSED[role]
    for path in refused - {"/access/tokens/{token}"}:
        assert "that takes the role" in one.get(path.format(**names)).text


def test_who_is_unknown_is_led_to_the_login_and_back(night: Api, names: dict[str, str]) -> None:
    nobody = Person(night)
    for path in TITLES:
        found = nobody.get(path.format(**names))
        assert found.status == 303, path
        assert found.headers["location"].startswith("/login")
    assert nobody.get("/models?q=d").headers["location"] == "/login?next=/models%3Fq%3Dd"
    assert nobody.get("/models", Accept="application/json").status == 401


def test_the_menu_offers_what_one_may_see(night: Api) -> None:
    shown = person(night, "viewer").get("/").text
    assert 'href="/models"' in shown
    assert 'href="/settings"' not in shown


def test_the_twin_is_the_apis_own_document(night: Api, names: dict[str, str]) -> None:
    ada = person(night, "admin", "ada")
    same = {
        "/models/digits": "/models/digits",
        "/models/digits/versions/2": "/models/digits/versions/2",
        f"/pushes/{names['push']}": f"/pushes/{names['push']}",
        "/repositories/vision": "/repositories/vision",
    }
    for page, path in same.items():
        document = night.local("GET", path).json
        assert ada.get(f"{page}.json").json == document
        assert ada.get(page, Accept="application/json").json == document


def test_every_screen_has_a_twin(night: Api, names: dict[str, str]) -> None:
    ada = person(night, "admin", "ada")
    for path in TITLES:
        filled = "/overview" if path == "/" else path.format(**names)
        found = ada.get(f"{filled}.json")
        assert found.headers["content-type"] == "application/json", path
        assert found.json


def test_a_name_that_ends_like_a_twin_is_not_taken_for_one(running: Api) -> None:
    with running.database.change(Actor("server:server1", "system")) as tx:
        loads.record(tx, "server1", [("odd.json", 1, "READY", ""), ("odd", 1, "READY", "")])
    ada = person(running, "admin", "ada")
    assert "/models/odd%2Ejson" in ada.get("/models").text
    page = ada.get("/models/odd%2Ejson")
    assert "<h1>odd.json</h1>" in page.text
    assert ada.get("/models/odd.json").json["name"] == "odd"
    assert ada.get("/models/odd%2Ejson.json").json["name"] == "odd.json"


def test_every_answer_is_guarded(night: Api) -> None:
    ada = person(night, "admin", "ada")
    answers = [
        *(ada.get(path) for path in ("/", "/models", "/models.json", "/nowhere", "/login")),
        *(ada.get(path) for path in ("/welcome", "/static/console.css", "/live?at=/nowhere")),
        ada.post("/models", {}),
        ada.post("/access/users", {"token": "wrong"}),
        Person(night).get("/"),
        night.ask("PUT", "//models", headers={"Origin": "http://evil.example"}),
    ]
    for found in answers:
        for name, value in GUARDS.items():
            assert found.headers.get(name.lower()) == value, (found.status, found.body[:80])
    assert "unsafe" not in GUARDS["Content-Security-Policy"]


def test_no_page_asks_anybody_but_us(night: Api, names: dict[str, str]) -> None:
    ada = person(night, "admin", "ada")
    for path in TITLES:
        page = ada.get(path.format(**names)).text
        assert not re.findall(r'(?:src|href|action)="(?!/|#)', page), path
        assert not re.findall(r"<script(?! src)|<style| style=| on[a-z]+=", page), path


def test_what_is_shown_is_found_again_by_its_act(names: dict[str, str]) -> None:
    """An act's screen is there, and has the parameters the act's path has."""
    paths = {screen.path for screen in SCREENS}
    for act in ACTS:
        assert act.screen in paths
        wanted = set(re.findall(r"{(\w+)}", act.screen))
        assert wanted <= set(re.findall(r"{(\w+)}", act.path)), act.path


def test_the_commands_to_copy_are_commands(running: Api) -> None:
    ada = person(running, "admin", "ada")
    odd = "x; touch owned"
    with running.database.change(Actor("server:server1", "system")) as tx:
        loads.record(tx, "server1", [(odd, 1, "READY", "")])
    pages = ("/", "/models", "/repositories", "/pushes", "/jobs", "/access", "/login")
    pages += (link("/models/{model}", model=odd),)
    found = [
        unescape(line)
        for page in pages
        for block in re.findall(r"<pre[^>]*>(.*?)</pre>", ada.get(page).text, re.DOTALL)
        for line in block.splitlines()
        if line.startswith("modelyard ")
    ]
    assert found
    for line in found:
        make_parser().parse_args(shlex.split(line)[1:])


def test_another_host_is_not_us(running: Api) -> None:
    found = Person(running).get("/login", Host="evil.example")
    assert found.status == 421
    assert "evil.example" in found.text

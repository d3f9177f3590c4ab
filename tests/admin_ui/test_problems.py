"""Problems are listed from the database, and acknowledged until they are others."""

import pytest

from control import loads
from control.health import VersionHealth
from control.sql.database import Actor
from support.admin import Api
from support.console import person
from support.deployed import deploy

SERVER = Actor("server:server1", "system")
OK = VersionHealth("READY", "ok", "", 0.0)
FAILING = VersionHealth("FAILING", "errors", "61 of 61 requests failed", 10.0)


def say(running: Api, health: VersionHealth) -> None:
    with running.database.change(SERVER) as tx:
        loads.record(tx, "server1", [("digits", 1, "READY", "", health)])


@pytest.fixture
def failing(running: Api) -> Api:
    deploy(running.database)
    say(running, FAILING)
    return running


def listed(running: Api) -> list[tuple[str, str]]:
    """Title and note."""
    rows = running.local("GET", "/problems").json["items"]
    return [(one["title"], (one["acknowledged"] or {"note": ""})["note"]) for one in rows]


def key(running: Api) -> str:
    (row,) = running.local("GET", "/problems").json["items"]
    return str(row["key"])


TITLE = "digits version 1 fails requests on server server1"


def test_a_problem_is_acknowledged_with_a_note_and_taken_back(failing: Api) -> None:
    assert listed(failing) == [(TITLE, "")]
    path = f"/problems/{key(failing)}/acknowledgement"
    made = failing.local("PUT", path, {"note": " the feature store is down "})
    assert made.status == 200
    assert made.json["acknowledged"]["note"] == "the feature store is down"
    assert listed(failing) == [(TITLE, "the feature store is down")]
    assert failing.local("DELETE", f"/problems/{key(failing)}/acknowledgement").status == 204
    assert listed(failing) == [(TITLE, "")]
    audit = failing.local("GET", "/audit?action=problem.").json["items"]
    assert [one["action"] for one in audit] == [
        "problem.unacknowledged", "problem.acknowledged",
    ]  # fmt: skip


def test_an_acknowledgement_is_over_when_the_version_recovers_and_fails_anew(failing: Api) -> None:
    failing.local("PUT", f"/problems/{key(failing)}/acknowledgement", {"note": "known"})
    say(failing, OK)
    assert listed(failing) == []
    say(failing, VersionHealth("FAILING", "errors", "10 of 10 requests failed", 4e9))
    assert listed(failing) == [(TITLE, "")]


@pytest.mark.parametrize(
    ("verb", "body", "status"),
    [("PUT", {"note": "x" * 1001}, 400), ("PUT", {}, 400), ("DELETE", None, 404)],
)
def test_what_cannot_be_done_is_refused(
    failing: Api, verb: str, body: dict[str, str] | None, status: int
) -> None:
    path = f"/problems/{key(failing)}/acknowledgement"
    assert failing.local(verb, path, body).status == status
    assert failing.local("PUT", "/problems/none/acknowledgement", {"note": ""}).status == 404


def test_the_console_folds_what_an_operator_acknowledges(failing: Api) -> None:
    olga, vera = person(failing, "operator", "olga"), person(failing, "viewer", "vera")
    page = f"/problems/{key(failing)}"
    assert "Acknowledge</h2>" in olga.get(page).text
    assert "Acknowledge</h2>" not in vera.get(page).text
    done = olga.post(f"{page}/acknowledge", {"note": "known <b>"})
    assert done.status == 303
    shown = vera.get("/").text
    assert "Only acknowledged problems." in shown
    assert "1 problem acknowledged" in shown
    assert "known &lt;b&gt;" in shown
    assert olga.get(page).status == 404  # it is another row now

"""Every route × every kind of principal: who is let in is written down here once more, by hand."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from starlette.routing import Route

from control.access.sessions import open_session
from control.api.app import admin_routes
from control.api.operations import ROUTES
from control.authentication.credentials import COOKIE
from control.deployments.repositories import create_repository
from control.sql.database import SYSTEM, Database
from support.admin import Api, api

PEOPLE = ("viewer", "operator", "admin")
SCOPES = ("infer:*", "infer:digits", "read", "operate", "admin", "push:vision:*", "push:other:*")
EVERYBODY = {*PEOPLE, *SCOPES}
READERS = {*PEOPLE, "infer:*", "read", "operate", "admin"}
OPERATORS = {"operator", "operate", "admin"}
ADMINS = {"admin"}
PULLERS = {*PEOPLE, "read", "operate", "admin"}

EXPECTED: dict[tuple[str, str], set[str]] = {
    ("GET", "/me"): EVERYBODY,
    ("POST", "/invitations"): ADMINS,
    ("POST", "/invitations/accept"): EVERYBODY | {"nobody"},
    ("GET", "/users"): ADMINS,
    ("POST", "/users"): ADMINS,
    ("GET", "/users/{user}"): ADMINS,
    ("PATCH", "/users/{user}"): ADMINS,
    ("GET", "/tokens"): {*PEOPLE, "admin"},
    ("POST", "/tokens"): {*PEOPLE, "admin"},
    ("DELETE", "/tokens/{token}"): EVERYBODY,
    ("GET", "/repositories"): READERS,
    ("POST", "/repositories"): ADMINS,
    ("GET", "/repositories/{repository}"): PULLERS | {"push:vision:*"},
    ("PATCH", "/repositories/{repository}"): ADMINS,
    ("DELETE", "/repositories/{repository}"): ADMINS,
    ("POST", "/repositories/{repository}/deploy"): OPERATORS,
    ("GET", "/repositories/{repository}/commits"): PULLERS | {"push:vision:*"},
    ("GET", "/pushes"): PULLERS,
    ("GET", "/pushes/{push}"): EVERYBODY,
    ("GET", "/models"): READERS,
    ("GET", "/loads"): READERS,
    ("GET", "/problems"): READERS,
    ("PUT", "/problems/{problem}/acknowledgement"): OPERATORS,
    ("DELETE", "/problems/{problem}/acknowledgement"): OPERATORS,
    ("GET", "/instances"): READERS,
    ("GET", "/instances/{model}"): READERS | {"infer:digits"},
    ("GET", "/instances/{model}/versions/{version}/files"): READERS | {"infer:digits"},
    ("GET", "/instances/{model}/versions/{version}/steps"): READERS | {"infer:digits"},
    ("GET", "/deaths"): READERS,
    ("GET", "/residency"): READERS,
    ("PUT", "/residency/{model}/pin"): OPERATORS,
    ("DELETE", "/residency/{model}/pin"): OPERATORS,
    ("POST", "/residency/{model}/evict"): OPERATORS,
    ("POST", "/residency/{model}/load"): OPERATORS,
    ("GET", "/samples"): OPERATORS,
    ("GET", "/sampling"): OPERATORS,
    ("PUT", "/sampling/{model}"): OPERATORS,
    ("DELETE", "/sampling/{model}"): OPERATORS,
    ("GET", "/models/{model}"): READERS | {"infer:digits"},
    ("GET", "/models/{model}/versions"): READERS | {"infer:digits"},
    ("GET", "/models/{model}/versions/{version}"): READERS | {"infer:digits"},
    ("GET", "/aliases"): READERS,
    ("GET", "/models/{model}/aliases"): READERS | {"infer:digits"},
    ("GET", "/models/{model}/aliases/{alias}"): READERS | {"infer:digits"},
    ("PUT", "/models/{model}/aliases/{alias}"): OPERATORS,
    ("DELETE", "/models/{model}/aliases/{alias}"): OPERATORS,
    ("GET", "/routes"): READERS,
    ("GET", "/routes/{route}"): READERS,
    ("PUT", "/routes/{route}"): OPERATORS,
    ("PATCH", "/routes/{route}"): OPERATORS,
    ("DELETE", "/routes/{route}"): OPERATORS,
    ("POST", "/routes/{route}/kill"): OPERATORS,
    ("DELETE", "/routes/{route}/kill"): OPERATORS,
    ("GET", "/routes/{route}/explain"): READERS,
    ("GET", "/rollouts"): READERS,
    ("POST", "/rollouts"): OPERATORS,
    ("GET", "/rollouts/{rollout}"): READERS,
    ("GET", "/rollouts/{rollout}/standing"): READERS,
    ("GET", "/rollouts/{rollout}/evidence"): READERS,
    ("GET", "/rollouts/{rollout}/outlook"): READERS,
    ("GET", "/models/{model}/rollback"): READERS | {"infer:digits"},
    ("POST", "/models/{model}/rollback"): OPERATORS,
    ("POST", "/rollouts/{rollout}/promote"): OPERATORS,
    ("POST", "/rollouts/{rollout}/promote-full"): OPERATORS,
    ("POST", "/rollouts/{rollout}/pause"): OPERATORS,
    ("POST", "/rollouts/{rollout}/resume"): OPERATORS,
    ("POST", "/rollouts/{rollout}/abort"): OPERATORS,
    ("POST", "/rollouts/{rollout}/retry"): OPERATORS,
    ("GET", "/experiments"): READERS,
    ("POST", "/experiments"): OPERATORS,
    ("GET", "/experiments/{experiment}"): READERS,
    ("DELETE", "/experiments/{experiment}"): OPERATORS,
    ("POST", "/experiments/{experiment}/start"): OPERATORS,
    ("POST", "/experiments/{experiment}/stop"): OPERATORS,
    ("POST", "/experiments/{experiment}/conclude"): OPERATORS,
    ("GET", "/experiments/{experiment}/analysis"): READERS,
    ("GET", "/experiments/{experiment}/series"): READERS,
    ("GET", "/jobs"): READERS,
    ("POST", "/jobs"): OPERATORS,
    ("GET", "/jobs/{job}"): READERS,
    ("GET", "/jobs/{job}/log"): READERS,
    ("GET", "/jobs/{job}/report"): READERS,
    ("POST", "/jobs/{job}/cancel"): OPERATORS,
    ("POST", "/jobs/{job}/retry"): OPERATORS,
    ("GET", "/pipelines"): READERS,
    ("GET", "/pipelines/{pipeline}"): READERS,
    ("POST", "/pipelines/{pipeline}/cancel"): OPERATORS,
    ("GET", "/imports"): READERS,
    ("POST", "/imports"): OPERATORS,
    ("GET", "/imports/{import}"): READERS,
    ("POST", "/imports/{import}/cancel"): OPERATORS,
    ("GET", "/requests"): OPERATORS,
    ("GET", "/drift"): READERS,
    ("GET", "/drift/{model}"): READERS,
    ("PUT", "/drift/{model}"): OPERATORS,
    ("DELETE", "/drift/{model}"): OPERATORS,
    ("PUT", "/drift/{model}/reference"): OPERATORS,
    ("GET", "/drift/{model}/profile"): READERS,
    ("GET", "/series"): READERS,
    ("GET", "/series/storage"): READERS,
    ("GET", "/events"): READERS,
    ("GET", "/webhooks"): READERS,
    ("POST", "/webhooks"): ADMINS,
    ("GET", "/webhooks/{webhook}"): READERS,
    ("PATCH", "/webhooks/{webhook}"): ADMINS,
    ("DELETE", "/webhooks/{webhook}"): ADMINS,
    ("POST", "/webhooks/{webhook}/rotate"): ADMINS,
    ("POST", "/webhooks/{webhook}/test"): OPERATORS,
    ("GET", "/deliveries"): READERS,
    ("GET", "/deliveries/{delivery}"): READERS,
    ("POST", "/deliveries/{delivery}/retry"): OPERATORS,
    ("GET", "/mutes"): READERS,
    ("POST", "/mutes"): OPERATORS,
    ("DELETE", "/mutes/{mute}"): OPERATORS,
    ("GET", "/audit"): OPERATORS,
    ("GET", "/server"): EVERYBODY,
    ("GET", "/servers"): READERS,
    ("GET", "/settings"): ADMINS,
    ("GET", "/log"): ADMINS,
    ("POST", "/backup"): ADMINS,
}
"""Who gets further than 401 and 403; "admin" is both the role and the scope. That a push or a token
is not there is told to everybody known."""

NAMES = {
    "user": "somebody",
    "token": "0" * 20,
    "repository": "vision",
    "push": "0" * 20,
    "import": "0" * 20,
    "job": "none",
    "pipeline": "none",
    "model": "digits",
    "version": "1",
    "alias": "champion",
    "route": "numbers",
    "rollout": "0" * 20,
    "experiment": "colour",
    "webhook": "on-call",
    "delivery": "0" * 20,
    "mute": "0" * 20,
    "problem": "0" * 12,
}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path) -> Iterator[Api]:
    folder = tmp_path_factory.mktemp("access")
    shutil.copy(migrated_sqlite, folder / "modelyard.db")
    database = Database(f"sqlite:///{folder}/modelyard.db")
    with api(database, folder) as running:
        with database.change(SYSTEM) as tx:
            create_repository(tx, "vision")
        yield running
    database.close()


@pytest.fixture(scope="module")
def principals(served: Api) -> dict[str, dict[str, str]]:
    """Headers of each kind of principal. The tokens are an admin's: their scopes decide."""
    found: dict[str, dict[str, str]] = {"nobody": {}}
    for role in PEOPLE:
        served.user(role, role)
        with served.database.change(SYSTEM) as tx:
            cookie = open_session(tx, role, "")
        origin = {"Origin": served.url, "X-Modelyard-CSRF": "1"}
        found[role] = {"Cookie": f"{COOKIE}={cookie}", **origin}
    for scope in SCOPES:
        found[f"token {scope}"] = {"Authorization": f"Bearer {served.token('admin', scope)}"}
    return found


def test_every_route_is_in_the_table_and_here(served: Api) -> None:
    routes = [route for route in admin_routes(served.services) if isinstance(route, Route)]
    there = {
        (verb, route.path.removeprefix("/api/v1"))
        for route in routes
        for verb in (route.methods or set()) - {"HEAD"}
        if route.path.startswith("/api/v1")
    }
    assert there - {("GET", "/openapi.json")} == set(ROUTES) == set(EXPECTED)


@pytest.mark.parametrize(("verb", "path"), EXPECTED, ids=map(" ".join, EXPECTED))
def test_only_those_who_may_get_in(
    served: Api, principals: dict[str, dict[str, str]], verb: str, path: str
) -> None:
    let_in = set()
    for who, headers in principals.items():
        found = served.ask(verb, path.format(**NAMES), headers=headers)
        assert found.status < 500, found.body
        if found.status not in (401, 403):
            let_in.add(who)
    expected = EXPECTED[verb, path]
    assert let_in == expected & {*PEOPLE, "nobody"} | {f"token {x}" for x in expected & {*SCOPES}}


@pytest.mark.parametrize("path", ["//healthz", "//readyz", "/openapi.json"])
def test_health_and_description_are_everybodys(served: Api, path: str) -> None:
    assert served.ask("GET", path).status == 200


def test_a_token_of_a_viewer_may_no_more_than_the_viewer(served: Api, principals: object) -> None:
    token = served.token("viewer", "read")
    assert served.ask("GET", "/audit", token=token).code == "forbidden"
    assert "operator" in served.ask("GET", "/audit", token=token).message


def test_who_is_refused_hears_which_scope_is_missing(served: Api, principals: object) -> None:
    token = served.token("admin", "infer:digits")
    found = served.ask("GET", "/models/other", token=token)
    assert (found.status, found.code) == (403, "forbidden")
    assert "scope read" in found.message


def test_a_token_cannot_make_itself_a_better_one(served: Api, principals: object) -> None:
    token = served.token("admin", "operate")
    wanted = {"name": "more", "scopes": ["admin"], "user": "admin"}
    assert served.ask("POST", "/tokens", wanted, token=token).code == "forbidden"
    del wanted["user"]
    assert served.ask("POST", "/tokens", wanted, token=token).code == "forbidden"

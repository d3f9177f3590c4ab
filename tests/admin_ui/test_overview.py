"""The overview beside the gateway: what it tells of workers is told, and without it the rest is."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from admin_support import Api
from console_support import console_over, person
from control.database import Database
from deployed_support import deploy
from server.admin.link import GatewayAway

DYING = {
    "model": "digits", "version": 2, "instances": 2, "ready": 1, "deaths": 12,
    "ending": "exited with status 3; last line on stderr: '<b>the list is gone'",
}  # fmt: skip


def test_workers_that_die_are_told_while_their_version_is_ready(
    sqlite: Database, tmp_path: Path
) -> None:
    async def ask(what: str, **facts: Any) -> Mapping[str, Any]:
        return {"rows": [{**DYING, "since": time.time() - 3600, "last": time.time() - 5}]}

    with console_over(sqlite, tmp_path, ask_gateway=ask) as running:
        deploy(running.database)
        vera = person(running, "viewer", "vera")
        shown = vera.get("/")
        (told,) = vera.get("/", Accept="application/json").json["problems"]
    assert told["title"].startswith("digits version 2: its worker dies again and again on server")
    assert told["why"].startswith("12 deaths, 1 of 2 instances ready now; the last, at ")
    assert told["to"] == "/models/digits"
    assert "&lt;b&gt;the list is gone" in shown.text


def test_without_a_gateway_the_rest_is_told(sqlite: Database, tmp_path: Path) -> None:
    async def ask(what: str, **facts: Any) -> Mapping[str, Any]:
        raise GatewayAway("the gateway does not answer; try again")

    with console_over(sqlite, tmp_path, ask_gateway=ask) as running:
        deploy(running.database)
        shown = person(running, "viewer", "vera").get("/")
    assert shown.status == 200
    assert "Latest pushes" in shown.text


def test_where_no_worker_died_there_is_nothing_to_tell(running: Api) -> None:
    assert running.local("GET", "/deaths").json == {"items": []}

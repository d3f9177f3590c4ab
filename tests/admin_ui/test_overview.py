"""The overview beside the gateway: what it tells of workers is told, and without it the rest is."""

import time
from pathlib import Path
from typing import Any

from msgspec import convert

from control import loads
from control.deployments import aliases, pending_changes
from control.gateways.link import GatewayUnreachable
from control.gateways.queries import (
    CrashReport,
    Query,
    VersionCrashes,
)
from control.sql.database import SYSTEM, Database
from support.admin import Api
from support.console import console_over, person
from support.deployed import deploy

DYING = {
    "model": "digits", "version": 2, "instances": 2, "ready": 1, "deaths": 12,
    "ending": "exited with status 3; last line on stderr: '<b>the list is gone'",
}  # fmt: skip


def test_workers_that_die_are_told_while_their_version_is_ready(
    sqlite: Database, tmp_path: Path
) -> None:
    async def ask(_query: Query) -> CrashReport:
        crashes = {**DYING, "since": time.time() - 3600, "last": time.time() - 5}
        return CrashReport((convert(crashes, VersionCrashes),))

    with console_over(sqlite, tmp_path, ask_gateway=ask) as running:
        deploy(running.database)
        vera = person(running, "viewer", "vera")
        shown = vera.get("/")
        (told,) = vera.get("/", Accept="application/json").json["problems"]
    assert told["title"] == "digits version 2 serves with 1 of 2 instances on server server1"
    assert told["reason"].startswith("a worker exited with status 3")
    assert told["page"] == "/models/digits"
    assert "&lt;b&gt;the list is gone" in shown.text


def test_what_serves_on_after_a_failed_reload_is_told(sqlite: Database, tmp_path: Path) -> None:
    why = "serving what was loaded before: model.onnx is cut short"
    with console_over(sqlite, tmp_path) as running:
        deploy(running.database)
        with running.database.change(SYSTEM) as tx:
            loads.record(tx, "server1", [("digits", 1, "READY", why)])
            pending_changes.record(
                tx, "server1", [("alias digits@champion", "kept at version 1: no")]
            )
            aliases.set_alias(tx, "digits", "champion", 2)
        shown = person(running, "viewer", "vera").get("/").text
    assert "digits version 1 could not be reloaded on server server1" in shown
    assert why in shown
    assert "alias digits@champion is not in force on server server1" in shown


def test_without_a_gateway_the_rest_is_told(sqlite: Database, tmp_path: Path) -> None:
    async def ask(_query: Query) -> Any:
        raise GatewayUnreachable("the gateway does not answer; try again")

    with console_over(sqlite, tmp_path, ask_gateway=ask) as running:
        deploy(running.database)
        shown = person(running, "viewer", "vera").get("/")
    assert shown.status == 200
    assert ">Pushes</h2>" in shown.text


def test_where_no_worker_died_there_is_nothing_to_tell(running: Api) -> None:
    assert running.local("GET", "/deaths").json == {"items": []}


def test_the_page_of_a_model_says_what_is_pending(night: Api) -> None:
    arms = [{"name": "stable", "model": "digits", "version": 1, "weight": 100}]
    assert night.local("PUT", "/routes/digits", {"arms": arms}).status == 200
    with night.database.change(SYSTEM) as tx:
        aliases.set_alias(tx, "digits", "champion", 2)
        rows = [("alias digits@champion", "kept at version 1"), ("route digits", "an arm loads")]
        pending_changes.record(tx, "server1", rows)
    shown = person(night, "viewer", "vera").get("/models/digits").text
    assert "alias @champion</a> on server server1: kept at version 1." in shown
    assert "route digits</a> on server server1: an arm loads." in shown


def test_a_model_of_which_nothing_can_answer_is_not_offered_to_be_tried(night: Api) -> None:
    with night.database.change(SYSTEM) as tx:
        rows = [("broken", 1, "FAILED", "cut short"), ("whole", 1, "READY", "")]
        loads.record(tx, "server1", rows)
    vera = person(night, "viewer")
    assert "/playground/whole" in vera.get("/models/whole").text
    assert "/playground/broken" not in vera.get("/models/broken").text

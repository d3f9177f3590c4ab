"""A model from an empty state to served, moved and rolled back, with the stock git client."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.yard import Yard, write_identity, yard


@pytest.fixture(scope="module")
def y(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Yard]:
    with yard(tmp_path_factory.mktemp("yard")) as made:
        yield made


@pytest.fixture(scope="module")
def pushed(y: Yard) -> Path:
    """A repository whose main has `m` with version 1, served."""
    work = y.repository("vision")
    write_identity(work, "m", 1)
    y.commit(work, "m, first version")
    y.push(work)
    y.wait_versions("m", 1)
    return work


def test_the_pusher_reads_what_was_checked_and_that_it_is_served(y: Yard, tmp_path: Path) -> None:
    work = y.repository("spoken")
    write_identity(work, "spoken", 1)
    y.commit(work, "first")
    said = y.push(work)
    assert "remote: spoken: version 1 (identity, " in said
    assert "remote: served: spoken" in said
    assert y.versions("spoken") == [1]


def test_a_second_version_an_alias_an_older_commit_and_a_revert(y: Yard, pushed: Path) -> None:
    first = y.git(pushed, "rev-parse", "HEAD").strip()
    write_identity(pushed, "m", 2)
    y.commit(pushed, "m, second version")
    y.push(pushed)
    y.wait_versions("m", 2)

    assert y.api("PUT", "/models/m/aliases/champion", {"version": 1})[0] in (200, 201)
    y.wait_versions("m", 1, 2)
    status, body = y.server.get("/v2/models/m@champion")
    assert (status, json.loads(body)["versions"]) == (200, ["1"])

    y.cli("repo", "deploy", "vision", first)
    y.wait_versions("m", 1)

    assert y.api("DELETE", "/models/m/aliases/champion")[0] in (200, 204)
    y.git(pushed, "revert", "--no-edit", "HEAD")
    y.push(pushed)
    y.wait_versions("m", 1)

    kinds = [event["kind"] for event in y.api("GET", "/events?limit=500")[1]["items"]]
    for kind in ("push.received", "push.deployed", "push.served", "alias.created", "version.added"):
        assert kind in kinds
    actions = {row["action"] for row in y.api("GET", "/audit?limit=500")[1]["items"]}
    assert {"push.received", "alias.created", "alias.deleted", "model.deployed"} <= actions


def test_a_model_taken_out_of_the_tree_is_unloaded(y: Yard) -> None:
    work = y.repository("brief")
    write_identity(work, "brief", 1)
    write_identity(work, "stays", 1)
    y.commit(work, "two models")
    y.push(work)
    y.wait_versions("brief", 1)
    y.git(work, "rm", "-rq", "models/brief")
    y.commit(work, "one model")
    assert "brief: removed" in y.push(work)
    y.wait_versions("brief")
    assert y.versions("stays") == [1]


def test_a_commit_that_only_changes_a_config_swaps_the_same_version(y: Yard) -> None:
    work = y.repository("swap")
    write_identity(work, "swap", 1)
    y.commit(work, "first")
    y.push(work)
    y.wait_versions("swap", 1)
    write_identity(
        work, "swap", 1, config='parameters { key: "note" value { string_value: "new" } }\n'
    )
    y.commit(work, "a note")
    y.push(work)

    def swapped() -> bool:
        status, body = y.server.get("/v2/models/swap/config")
        return status == 200 and json.loads(body)["parameters"]["note"]["string_value"] == "new"

    y.wait_for(swapped, "the new config")
    assert len(y.api("GET", "/models/swap/versions")[1]["items"]) == 1


def test_another_branch_is_stored_and_not_deployed(y: Yard) -> None:
    work = y.repository("branchy")
    write_identity(work, "branchy", 1)
    y.commit(work, "first")
    said = y.push(work, "main:refs/heads/try")
    assert "try is stored, not deployed" in said
    assert y.versions("branchy") == []


def test_a_clone_has_what_was_pushed(y: Yard, pushed: Path, tmp_path: Path) -> None:
    y.git(tmp_path, "clone", "-q", y.url("vision"), "copy")
    assert (tmp_path / "copy" / "models" / "m" / "config.pbtxt").exists()


def test_pushed_models_are_served_after_a_restart_without_a_control_process(
    y: Yard, pushed: Path
) -> None:
    served = y.versions("m")
    y.kill()
    y.flags["database"] = "postgresql://nobody@127.0.0.1:1/nothing"
    y.flags["initial_fetch_timeout_secs"] = 2
    try:
        y.start(wait=False)
        y.server.wait_ready()
        y.wait_versions("m", *served)
    finally:
        del y.flags["database"], y.flags["initial_fetch_timeout_secs"]
        y.again()

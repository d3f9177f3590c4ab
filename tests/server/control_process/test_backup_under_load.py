"""A backup taken while everything moves, made into a server again that serves the same."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from control.backup.rows import AHEAD
from support.control import fresh_url
from support.server import free_ports
from support.yard import PATIENCE_SECS, Yard, write_identity, yard
from support.yard_load import (
    check_load,
    check_whole,
    inferring,
    next_version,
    push_until_accepted,
)


@dataclass
class Moving:
    """A server that is pushed to all the time; `work` is what pushes."""

    y: Yard
    work: Path
    pushed: int = 1
    told: dict[str, set[tuple[str, ...]]] = field(default_factory=dict)


@contextmanager
def moving(folder: Path) -> Iterator[Moving]:
    """Pushes of `m`, version after version, and inference, until the block ends; `steady` stays."""
    folder.mkdir()
    with yard(folder) as y:
        steady = y.repository("steady")
        write_identity(steady, "steady", 1)
        y.commit(steady, "steady")
        y.push(steady)
        work = y.repository("vision")
        write_identity(work, "m", 1)
        y.commit(work, "version 1")
        y.push(work)
        y.wait_versions("m", 1)
        assert y.api("PUT", "/models/steady/aliases/champion", {"version": 1})[0] in (200, 201)
        made, ending = Moving(y, work), threading.Event()

        def push() -> None:
            while not ending.is_set():
                commit = next_version(y, work, "m", made.pushed + 1)
                push_until_accepted(y, work, commit)
                made.pushed += 1

        pushing = threading.Thread(target=push, daemon=True)
        pushing.start()
        try:
            with inferring(y, "m") as load:
                yield made
                ending.set()
                pushing.join(120)
            check_load(load)
            check_whole(y, steady, work)
            made.told = facts(y)
        finally:
            ending.set()
            pushing.join(120)


def back_up(made: Moving, archive: Path) -> None:
    """Twice, so that the second one falls among pushes for certain."""
    for number in (1, 2):
        least = made.pushed + 1
        made.y.wait_for(lambda least=least: made.pushed >= least, f"push {least}", 60)
        archive.unlink(missing_ok=True)
        made.y.cli("backup", str(archive))
        assert archive.stat().st_size > 0, number


@contextmanager
def restored(folder: Path, archive: Path, token: str, database: str = "") -> Iterator[Yard]:
    """A server that never was, from the archive; it pushes with the old server's token."""
    folder.mkdir()
    (folder / "models").mkdir()
    listeners = ("http_port", "grpc_port", "metrics_port", "admin_port")
    ports = dict(zip(listeners, free_ports(4), strict=True))
    flags: dict[str, object] = {
        **ports,
        "model_repository": str(folder / "models"),
        "state_dir": str(folder / "state"),
        **({"database": database} if database else {}),
    }
    fresh = Yard(folder, flags, {}, token=token)
    fresh.cli("restore", str(archive), *(["--database", database] if database else []))
    try:
        fresh.start(wait=False)
        fresh.server.wait_ready(PATIENCE_SECS)
        assert fresh.versions("steady") == [1], "ready before what was restored serves"
        fresh.wait_ready()
        yield fresh
    finally:
        fresh.stop()


def check_restored(made: Moving, new: Yard) -> None:
    """Users, tokens, audit, alias and models are the old server's at the backup's moment."""
    told = facts(new)
    assert told["users"] == made.told["users"]
    assert told["tokens"] == made.told["tokens"]
    copied = {row for row in told["audit"] if int(row[0]) < AHEAD}
    last = max(int(row[0]) for row in copied)
    assert copied == {row for row in made.told["audit"] if int(row[0]) <= last}
    new.wait_versions("steady", 1, seconds=60)
    new.wait_for(lambda: len(new.versions("m")) == 1, "one version of m", 60)
    status, body = new.server.get("/v2/models/steady@champion")
    assert (status, json.loads(body)["versions"]) == (200, ["1"])
    assert 1 < new.versions("m")[0] <= made.pushed


def check_goes_on(made: Moving, new: Yard) -> None:
    """The old token pushes the next version."""
    number = made.pushed + 1
    new.git(made.work, "remote", "set-url", "origin", new.url("vision"))
    push_until_accepted(new, made.work, next_version(new, made.work, "m", number))
    new.wait_versions("m", number, seconds=60)
    check_whole(new, made.work)


def facts(y: Yard) -> dict[str, set[tuple[str, ...]]]:
    return {
        "users": _named(y, "/users", "name", "role"),
        "tokens": _named(y, "/tokens", "id", "name", "user"),
        "audit": _named(y, "/audit", "id", "at", "action", "subject", "actor"),
    }


def _named(y: Yard, path: str, *fields: str) -> set[tuple[str, ...]]:
    found, cursor = set(), ""
    while True:
        status, page = y.api("GET", f"{path}?limit=500{cursor}")
        assert status == 200, page
        found |= {tuple(str(row[field]) for field in fields) for row in page["items"]}
        if page["next"] is None:
            return found
        cursor = f"&cursor={page['next']}"


@pytest.mark.slow
def test_a_backup_under_load_makes_the_same_server_again(tmp_path: Path) -> None:
    archive = tmp_path / "backup.tar"
    with moving(tmp_path / "old") as made:
        back_up(made, archive)
    with restored(tmp_path / "new", archive, made.y.token) as new:
        check_restored(made, new)
        check_goes_on(made, new)


@pytest.mark.slow
def test_a_backup_of_sqlite_is_restored_into_postgresql(tmp_path: Path) -> None:
    archive = tmp_path / "backup.tar"
    with moving(tmp_path / "old") as made:
        back_up(made, archive)
    with (
        fresh_url("postgresql", tmp_path) as url,
        restored(tmp_path / "new", archive, made.y.token, url) as new,
    ):
        check_restored(made, new)
        check_goes_on(made, new)

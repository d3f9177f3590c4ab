"""Somebody removes or damages the database's file while the server runs, or while it does not."""

import http.client
import os
from pathlib import Path

import pytest

from support.yard import Yard, write_identity, yard
from support.yard_load import check_load, inferring

pytestmark = pytest.mark.slow


def refusals(y: Yard, work: Path) -> list[str]:
    """What a change over the API, the command line and git is told; none is accepted."""
    status, answer = y.api("POST", "/users", {"name": "eve", "role": "viewer"})
    assert status == 503, answer
    said = y.cli("repo", "create", "other", ok=False)
    write_identity(work, "m", 1, 2)
    y.commit(work, "version 2")
    pushed = " ".join(y.push(work, ok=False).replace("remote:", "").split())
    return [answer["error"]["message"], said, pushed]


def test_a_removed_database_takes_no_changes_and_is_saved_restored_and_served(
    tmp_path: Path,
) -> None:
    with yard(tmp_path) as y:
        work = y.repository("vision")
        write_identity(work, "m", 1)
        y.commit(work, "version 1")
        y.push(work)
        y.wait_versions("m", 1)
        with inferring(y, "m", clients=2) as load:
            (y.state / "modelyard.db").unlink()
            y.wait_for(lambda: "was removed while the server ran" in y.server.log(), "the log")
            said = refusals(y, work)
            y.cli("backup", str(tmp_path / "rescue.tar"))
            listed = y.cli("user", "list", "--json")
            page = console_page(y)
        check_load(load)
        y.stop()
        y.start(wait=False)
        y.server.wait_ready()
        y.wait_for(lambda: "modelyard.db" in lost(y), "the start to say what is missing")
        still_served = y.versions("m")
        made_anew = (y.state / "modelyard.db").exists()
        y.stop()

        y.state.rename(tmp_path / "aside")
        y.cli("restore", str(tmp_path / "rescue.tar"))
        y.start()
        y.wait_versions("m", 1)
        y.push(work)
        y.wait_versions("m", 2)

    assert all("was removed while the server ran" in one for one in said), repr(said)
    assert "docs/recovery.md" in said[0]
    assert "ada" in listed
    assert "was removed while the server ran" in page
    assert (still_served, made_anew) == ([1], False)


def console_page(y: Yard) -> str:
    """The console's list of models, as its reader sees it."""
    connection = http.client.HTTPConnection("127.0.0.1", y.admin_port, timeout=60)
    connection.request("GET", "/models", headers={"Authorization": f"Bearer {y.token}"})
    page = connection.getresponse().read().decode()
    connection.close()
    return page


def lost(y: Yard) -> str:
    """What the log says of a database that is missing."""
    return "".join(line for line in y.server.log().splitlines() if "is missing, and the" in line)


def test_a_damaged_database_takes_no_changes_and_models_are_served_on(tmp_path: Path) -> None:
    with yard(tmp_path) as y:
        work = y.repository("vision")
        write_identity(work, "m", 1)
        y.commit(work, "version 1")
        y.push(work)
        y.wait_versions("m", 1)
        y.again()  # what was in the WAL alone is in the file now
        path = y.state / "modelyard.db"
        with inferring(y, "m", clients=2) as load:
            with path.open("r+b") as file:
                file.write(os.urandom(path.stat().st_size))
            said = refusals(y, work)
        check_load(load)
        y.stop()
        before = len(y.server.log())
        y.start(wait=False)
        y.server.wait_ready()
        # SQLite finds "not a database" or "malformed", by what the WAL still holds of page 1.
        y.wait_for(lambda: "is damaged" in y.server.log()[before:], "the start to tell")
        served = y.versions("m")

    assert all("is damaged" in one for one in said), repr(said)
    assert served == [1]

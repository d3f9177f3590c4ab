"""The database is gone and the server is not: the console says so once, and of the database."""

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from control.clock import utc_now
from control.errors import DatabaseDamaged, DatabaseGone
from control.gateways.link import GatewayUnreachable
from control.gateways.queries import Query
from control.sql.database import Database
from support.admin import Api
from support.console import Person, console_over, person
from support.deployed import deploy
from support.server import free_ports


def late() -> datetime:
    """Long after the last heartbeat."""
    return utc_now() + timedelta(minutes=5)


def lose_database(running: Api) -> None:
    file = running.database.file
    assert file is not None
    file.path.unlink()
    with suppress(DatabaseGone, DatabaseDamaged):
        running.database.check()
    assert running.database.problem


def test_a_removed_database_is_told_once_and_no_server_is_called_silent(
    sqlite: Database, tmp_path: Path
) -> None:
    async def ask(_query: Query) -> Any:
        raise GatewayUnreachable("the gateway does not answer; try again")

    with console_over(sqlite, tmp_path, now=late, ask_gateway=ask) as running:
        deploy(running.database)
        vera = person(running, "viewer", "vera")
        with ThreadPoolExecutor(4) as pool:  # connections that are open stay of use
            assert all(one.status == 200 for one in pool.map(vera.get, ["/", "/servers"] * 4))
        lose_database(running)
        overview, servers, models = (vera.get(one).text for one in ("/", "/servers", "/models"))
    said = "was removed while the server ran"
    assert [page.count(said) for page in (overview, servers, models)] == [1, 1, 1]
    assert "sends no heartbeats" not in overview
    assert "server answers" not in overview
    assert "no heartbeat can be written" in servers
    assert "Models are still served" in overview


def test_a_database_that_does_not_answer_is_told_with_what_to_do(tmp_path: Path) -> None:
    away = Database(f"postgresql://postgres@127.0.0.1:{free_ports(1)[0]}/none")
    with console_over(away, tmp_path) as running:
        shown = Person(running, cookie="x" * 43).get("/")
    away.close()
    assert shown.status == 503
    assert "<h1>The database does not answer</h1>" in shown.text
    assert "Models are served as they are" in shown.text
    assert "see that it is running" in shown.text
    assert "Log in" not in shown.text

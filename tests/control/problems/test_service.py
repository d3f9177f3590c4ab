"""Which versions' problems are acknowledged, read from the database."""

from control import loads, servers
from control.problems.service import acknowledge, acknowledged_versions, list_problems
from control.sql.database import SYSTEM, Database
from support.control import ADA

BROKEN = ("digits", 2, "FAILED", "no such file")


def told(database: Database, server: str, *rows: tuple[str, int, str, str]) -> None:
    with database.change(SYSTEM) as tx:
        servers.register(tx, server, f"boot-{server}", "0.1", "http://127.0.0.1:1")
        loads.record(tx, server, rows)


def known(database: Database) -> set[str]:
    with database.change(SYSTEM) as tx:
        return set(acknowledged_versions(tx.session, tx.now))


def acknowledge_all(database: Database) -> None:
    with database.change(ADA) as tx:
        for problem in list_problems(tx.session, tx.now):
            acknowledge(tx, problem, "Otto looks at it")


def test_a_version_is_known_once_its_problem_is_acknowledged(database: Database) -> None:
    told(database, "srv", BROKEN)
    assert known(database) == set()
    acknowledge_all(database)
    assert known(database) == {"digits version 2"}


def test_another_reason_on_another_server_makes_it_unknown_again(database: Database) -> None:
    told(database, "srv", BROKEN)
    acknowledge_all(database)
    told(database, "other", ("digits", 2, "FAILED", "out of memory"))
    assert known(database) == set()
    acknowledge_all(database)
    assert known(database) == {"digits version 2"}

"""What a server has not put into force yet: the latest it said is all there is."""

from control.deployments import pending_changes
from control.sql.database import Database
from support.control import ADA


def _told(database: Database, *rows: tuple[str, str]) -> int:
    with database.change(ADA) as tx:
        return pending_changes.record(tx, "one", rows)


def _reasons(database: Database) -> dict[str, list[str]]:
    with database.reading() as session:
        found = pending_changes.by_subject(session)
    return {subject: [one.reason for one in views] for subject, views in found.items()}


def test_only_differences_are_written(database: Database) -> None:
    rows = (("route r", "arm a waits"), ("route r", "arm b waits"), ("alias m@c", "waits"))
    assert _told(database, *rows) == 2
    assert _told(database, *rows) == 0
    assert _reasons(database) == {"route r": ["arm a waits; arm b waits"], "alias m@c": ["waits"]}
    assert _told(database, ("alias m@c", "failed")) == 2
    assert _reasons(database) == {"alias m@c": ["failed"]}
    assert _told(database) == 1
    assert _reasons(database) == {}

"""A SQLite file that was removed, replaced or damaged takes no change that would be lost."""

import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from control.errors import DatabaseDamaged
from control.sql.database import Database
from control.tables import Meta
from support.control import ADA, rows


@pytest.fixture
def database(tmp_path: Path, migrated_sqlite: Path) -> Iterator[Database]:
    path = tmp_path / "modelyard.db"
    shutil.copy(migrated_sqlite, path)
    opened = Database(f"sqlite:///{path}")
    yield opened
    opened.close()


def put(database: Database, key: str, meanwhile: Callable[[Path], None] | None = None) -> None:
    with database.change(ADA) as tx:
        tx.session.add(Meta(key=key, value="x" * 500))
        if meanwhile is not None and database.file is not None:
            meanwhile(database.file.path)


def removed(path: Path) -> None:
    path.unlink()


def replaced(path: Path) -> None:
    aside = path.with_name("aside")
    shutil.copy(path, aside)
    os.replace(aside, path)


def without_wal(path: Path) -> None:
    path.with_name(f"{path.name}-wal").unlink()


def overwritten(path: Path) -> None:
    with path.open("r+b") as file:
        file.write(os.urandom(path.stat().st_size))


def truncated(path: Path) -> None:
    os.truncate(path, 4096)


HARMS = [removed, replaced, without_wal, overwritten, truncated]


@pytest.mark.parametrize("harm", HARMS)
def test_after_harm_no_change_is_acknowledged_and_the_refusal_says_how_to_restore(
    database: Database, harm: Callable[[Path], None]
) -> None:
    put(database, "before")
    assert database.file is not None
    harm(database.file.path)
    with pytest.raises(DatabaseDamaged, match=r"docs/recovery\.md") as refused:
        put(database, "after")
    assert str(database.file.path) in str(refused.value)
    assert database.problem == str(refused.value)


@pytest.mark.parametrize("harm", [removed, replaced, without_wal])
def test_harm_in_the_middle_of_a_change_is_noticed_before_it_is_acknowledged(
    database: Database, harm: Callable[[Path], None]
) -> None:
    told: list[bool] = []
    database.on_commit(told.append)
    assert database.file is not None
    with pytest.raises(DatabaseDamaged):
        put(database, "lost", harm)
    assert told == []


def test_what_was_removed_can_still_be_read_and_counts_again_once_it_is_back(
    database: Database,
) -> None:
    put(database, "before")
    assert database.file is not None
    path = database.file.path
    aside = path.with_name("aside")
    path.rename(aside)
    with pytest.raises(DatabaseDamaged):
        put(database, "refused")
    assert [row.key for row in rows(database, Meta)] == ["before"]
    aside.rename(path)
    put(database, "after")
    assert [row.key for row in rows(database, Meta)] == ["after", "before"]
    assert database.problem == ""


def test_a_file_that_is_gone_is_not_made_anew(database: Database) -> None:
    put(database, "before")
    assert database.file is not None
    database.file.path.unlink()
    database.engine.dispose()
    with pytest.raises(DatabaseDamaged), database.reading():
        pass
    assert not database.file.path.exists()


def test_our_own_writes_and_checkpoints_are_no_harm(database: Database) -> None:
    """More pages than SQLite lets its WAL have before it moves them into the file."""
    assert database.file is not None
    before = database.file.path.stat().st_mtime_ns
    for batch in range(30):
        with database.change(ADA) as tx:
            tx.session.add_all(Meta(key=f"{batch}-{one}", value="x" * 2000) for one in range(100))
    assert database.file.path.stat().st_mtime_ns != before
    assert database.problem == ""
    database.verify()


def test_another_process_that_writes_as_it_should_is_no_harm(database: Database) -> None:
    put(database, "before")
    assert database.file is not None
    other = sqlite3.connect(database.file.path, isolation_level=None)
    other.execute("INSERT INTO meta (key, value) VALUES ('other', 'x')")
    other.execute("PRAGMA wal_checkpoint(PASSIVE)")
    put(database, "after")
    other.close()
    assert [row.key for row in rows(database, Meta)] == ["after", "before", "other"]


def test_the_look_on_a_schedule_finds_a_damaged_page(database: Database) -> None:
    for number in range(50):
        put(database, f"key{number}")
    assert database.file is not None
    with database.engine.connect() as connection:
        connection.exec_driver_sql("PRAGMA wal_checkpoint(TRUNCATE)")
    path = database.file.path
    with path.open("r+b") as file:
        file.seek(path.stat().st_size - 4096)
        file.write(b"\xff" * 4096)
    with pytest.raises(DatabaseDamaged, match="damaged"):
        database.verify()
    with pytest.raises(DatabaseDamaged):
        put(database, "after")

"""Databases for tests of desired state: `def test_it(database: Database)` runs on each kind.

A package's conftest.py makes the fixtures known: `from support.control import *`. On PostgreSQL
(see `support.postgres`) this run makes a database of its own and drops it.
"""

import os
import secrets
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest
from sqlalchemy import delete, insert, select
from sqlalchemy.engine import make_url

from control.all_tables import Table
from control.sql.database import Actor, Database
from control.sql.migrate import migrate
from control.tables import Audit, Counter, Event
from support.postgres import server_url

__all__ = ["database", "empty_database", "migrated_postgresql", "migrated_sqlite"]

ADA = Actor("user:ada", "api", "192.0.2.7")

KINDS = ("sqlite", "postgresql")
_KINDS = ("sqlite", pytest.param("postgresql", marks=pytest.mark.slow))
"""Every test of rows runs on both; on PostgreSQL in the slow suite, but for those of `control.sql`
and of migrations, which make their tables themselves."""


@pytest.fixture(params=_KINDS)
def database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """With all tables, and nothing in them."""
    if request.param == "sqlite":
        shutil.copy(request.getfixturevalue("migrated_sqlite"), tmp_path / "modelyard.db")
        opened = Database(f"sqlite:///{tmp_path}/modelyard.db")
    else:
        opened = Database(request.getfixturevalue("migrated_postgresql"))
        _empty(opened)
    yield opened
    opened.close()


@pytest.fixture(params=KINDS)
def empty_database(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Database]:
    """Without tables."""
    with fresh_url(request.param, tmp_path) as url:
        opened = Database(url)
        yield opened
        opened.close()


@contextmanager
def fresh_url(kind: str, folder: Path) -> Iterator[str]:
    """The URL of a database of `kind` that nobody else uses, without tables."""
    if kind == "sqlite":
        yield f"sqlite:///{folder}/fresh.db"
    else:
        with _own_postgresql() as url:
            yield url


def terminate_connections(database: Database) -> None:
    """What PostgreSQL's clients see when it is stopped at once."""
    name = make_url(database.url).database
    with psycopg.connect(server_url(), autocommit=True) as connection:
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,)
        )


def wait_until_one_waits_for_a_lock(database: Database) -> None:
    """Of PostgreSQL's connections to this database; at most a minute."""
    waiting = (
        "SELECT count(*) FROM pg_stat_activity WHERE datname = %s AND wait_event_type = 'Lock'"
    )
    until = time.monotonic() + 60
    with psycopg.connect(server_url(), autocommit=True) as connection:
        while connection.execute(waiting, (make_url(database.url).database,)).fetchone() == (0,):
            assert time.monotonic() < until, "nobody waits for a lock"


def rows(database: Database, table: type[Table]) -> list[Any]:
    """All rows, by primary key, no longer tied to a session."""
    with database.reading() as session:
        found = session.scalars(select(table).order_by(*table.__table__.primary_key)).all()
        session.expunge_all()
        return list(found)


def told(database: Database) -> list[tuple[str, str]]:
    """Kind and subject of every event, in order."""
    return [(event.kind, event.subject) for event in rows(database, Event)]


def all_text(database: Database) -> str:
    """All that events and audit rows say, to look for what must not be there."""
    said = [
        vars(row) | {"_sa_instance_state": None}
        for table in (Event, Audit)
        for row in rows(database, table)
    ]
    return repr(said)


def desired_revision(database: Database) -> int:
    return next(row.value for row in rows(database, Counter) if row.name == "desired")


@pytest.fixture(scope="session")
def migrated_sqlite(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A migrated file to be copied."""
    path = tmp_path_factory.mktemp("tables") / "modelyard.db"
    opened = Database(f"sqlite:///{path}")
    migrate(opened)
    opened.close()  # the last one to close puts the WAL back into the file
    return path


@pytest.fixture(scope="session")
def migrated_postgresql() -> Iterator[str]:
    """The URL of a migrated database, one for all tests."""
    with _own_postgresql() as url:
        opened = Database(url)
        migrate(opened)
        opened.close()
        yield url


@contextmanager
def _own_postgresql() -> Iterator[str]:
    server, name = server_url(), f"modelyard_test_{os.getpid()}_{secrets.token_hex(4)}"
    with psycopg.connect(server, autocommit=True) as connection:
        connection.execute(f'CREATE DATABASE "{name}"')
    try:
        yield make_url(server).set(database=name).render_as_string(hide_password=False)
    finally:
        with psycopg.connect(server, autocommit=True) as connection:
            connection.execute(f'DROP DATABASE "{name}" WITH (FORCE)')


def _empty(database: Database) -> None:
    with database.engine.begin() as connection:
        for table in reversed(Table.metadata.sorted_tables):
            connection.execute(delete(table))
        counters = [{"name": "event", "value": 0}, {"name": "desired", "value": 0}]
        connection.execute(insert(Counter), counters)

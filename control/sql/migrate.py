"""Bring the tables to the form this build needs, under a lock, once however many servers start.

Migrations expand first and contract a release later, so that the previous build runs on the new
tables while servers are replaced one by one. A database of a later build is used as it is.
"""

import fcntl
import logging
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from sqlalchemy import Connection, inspect, text
from sqlalchemy.engine import make_url

import migrations
from control.errors import DatabaseGone
from control.sql.database import Database

LOCK_S = 60
_PG_LOCK = 0x6D6F64656C79617264 % 2**62  # "modelyard"

_log = logging.getLogger(__name__)
logging.getLogger("alembic").setLevel(logging.WARNING)  # it announces every step


def migrate(database: Database) -> None:
    """Run what is missing. Raises DatabaseGone, also when the lock is not had within a minute."""
    with database.answering(), _alone(database), _patient(database) as connection:
        before = _revision(connection)
        build_revisions = revisions()
        if before is not None and before not in build_revisions:
            _log.warning("the database %s is of a later build (%s)", database.name, before)
            return
        if before == build_revisions[-1]:
            return
        connection.rollback()
        with connection.begin():
            _upgrade(connection)
        _log.info(
            "database %s: schema migrated from %s to head", database.name, before or "nothing"
        )


def revisions() -> list[str]:
    """Of this build, oldest first: what each file's name begins with is its revision."""
    folder = Path(migrations.__path__[0]) / "versions"
    return sorted(path.name.partition("_")[0] for path in folder.glob("[0-9]*.py"))


def _revision(connection: Connection) -> str | None:
    """Of the tables there are; as Alembic keeps it."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    found: str | None = connection.scalar(text("SELECT version_num FROM alembic_version"))
    return found


def _upgrade(connection: Connection) -> None:
    """Alembic is imported for it: a start with nothing to migrate is spared 0.3 s and 10 MB."""
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(migrations.__path__[0])))
    config.attributes["connection"] = connection
    command.upgrade(config, "head")


@contextmanager
def _patient(database: Database) -> Iterator[Connection]:
    """A connection whose statements may take long."""
    with database.engine.connect() as connection:
        if not database.is_sqlite:
            from control.sql.postgresql import take_time

            take_time(connection)
        yield connection


@contextmanager
def _alone(database: Database) -> Iterator[None]:
    if database.is_sqlite:
        with _file_lock(make_url(database.url).database or ""):
            yield
        return
    with _patient(database) as connection:
        connection.execute(text(f"SET lock_timeout = '{LOCK_S}s'"))
        connection.execute(text(f"SELECT pg_advisory_lock({_PG_LOCK})"))
        try:
            yield
        finally:
            connection.execute(text(f"SELECT pg_advisory_unlock({_PG_LOCK})"))


@contextmanager
def _file_lock(path: str) -> Iterator[None]:
    """Beside the SQLite file; a server that died let go of it."""
    if path in ("", ":memory:"):
        yield
        return
    descriptor = os.open(f"{path}.migrating", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        _lock(descriptor, path)
        yield
    finally:
        os.close(descriptor)


def _lock(descriptor: int, path: str) -> None:
    until = time.monotonic() + LOCK_S
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() > until:
                raise DatabaseGone(
                    f"another process has been migrating {path} for a minute"
                ) from None
            time.sleep(0.05)
        else:
            return

"""The engine for a database's URL: SQLite, or PostgreSQL where its driver is installed."""

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError

from control.errors import Invalid
from control.sql.sqlite_file import SqliteFile
from repository.files.durable import create
from repository.install_lines import install_line

BUSY_MS = 10_000
"""How long a write to SQLite waits for another one, of this process or another."""

POOL_SIZE = 8

CACHE_KIB = 512
"""Of pages that one connection to SQLite keeps; the kernel keeps the file's, too. With SQLite's own
bound of 2 MiB the process would grow by 16 MiB as the database does."""


def check_url(url: str) -> str:
    """The URL with the driver we use; raises Invalid for one that cannot work."""
    try:
        parsed = make_url(url)
    except ArgumentError:
        raise Invalid(
            "the database is not a URL; give sqlite:///PATH or postgresql://USER@HOST/NAME",
            "database",
        ) from None
    drivers = {
        "sqlite": "sqlite",
        "postgresql": "postgresql+psycopg",
        "postgres": "postgresql+psycopg",
    }
    driver = drivers.get(parsed.get_backend_name())
    if driver is None:
        raise Invalid(
            f"the database cannot be '{parsed.get_backend_name()}'; give sqlite:///PATH or "
            "postgresql://USER@HOST/NAME",
            "database",
        )
    return parsed.set(drivername=driver).render_as_string(hide_password=False)


def sqlite_path(url: str) -> Path | None:
    """The file of a SQLite database; None for one in memory, and for PostgreSQL."""
    parsed = make_url(url)
    path = parsed.database or ""
    if parsed.get_backend_name() != "sqlite" or path in ("", ":memory:"):
        return None
    return Path(path)


def make_engine(url: str, file: SqliteFile | None) -> Engine:
    try:
        if url.startswith("sqlite"):
            return _sqlite(url, file)
        from control.sql.postgresql import postgresql

        return postgresql(url, POOL_SIZE)
    except (ModuleNotFoundError, NoSuchModuleError):
        raise Invalid(
            "PostgreSQL needs the package psycopg; install it with: " + install_line("postgres"),
            "database",
        ) from None


def _sqlite(url: str, file: SqliteFile | None) -> Engine:
    engine = create_engine(
        url,
        pool_size=POOL_SIZE,
        max_overflow=0,
        pool_timeout=BUSY_MS / 1000,
        pool_use_lifo=True,  # those hardly used keep few pages
    )

    @event.listens_for(engine, "do_connect")
    def _make_file(*_: Any) -> None:
        """For this user alone, whatever the umask; SQLite gives its WAL the same permissions."""
        if file is None:
            return
        file.may_connect()
        if not file.path.exists():
            with suppress(OSError):  # SQLite says in its own words why it cannot be made
                os.close(create(file.path))

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, record: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, below
        for pragma in (
            f"busy_timeout = {BUSY_MS}",
            "journal_mode = WAL",
            "synchronous = FULL",  # an accepted push survives the power cut as well
            "foreign_keys = ON",
            f"cache_size = -{CACHE_KIB}",
        ):
            connection.execute(f"PRAGMA {pragma}")
        if file is not None:
            connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()  # opens the WAL
            file.opened(record.info)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine

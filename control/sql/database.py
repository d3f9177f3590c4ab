"""The database: SQLite by default, PostgreSQL by URL; opened by the control process alone.

Calls block: run them on a thread. `change` is the only way to write.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from control.clock import utc_now
from control.errors import DatabaseFull, DatabaseGone, Invalid
from control.sql.sqlite_file import SqliteFile, is_damage, is_full
from control.sql.transaction import Actor, Fence, Transaction
from control.sql.writer_queue import WriterQueue
from repository.files.durable import create
from repository.install_lines import install_line

BUSY_MS = 10_000
"""How long a write to SQLite waits for another one, of this process or another."""

POOL_SIZE = 8

CACHE_KIB = 512
"""Of pages that one connection to SQLite keeps; the kernel keeps the file's, too. With SQLite's own
bound of 2 MiB the process would grow by 16 MiB as the database does."""


class Database:
    """One pool of connections. Any thread may use it; `close` it at the end."""

    def __init__(self, url: str) -> None:
        self.url = check_url(url)
        self._committed: list[Callable[[bool], None]] = []
        path = sqlite_path(self.url)
        self.file = SqliteFile(path) if path is not None else None
        self.engine = _make_engine(self.url, self.file)
        self._turns = WriterQueue()
        """To write to SQLite, whose own waiting only looks now and then whether the lock is free:
        among many writers, one may come too late each time."""

    @property
    def name(self) -> str:
        """The URL without its password."""
        return make_url(self.url).render_as_string(hide_password=True)

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

    @property
    def problem(self) -> str:
        """Why nothing is changed any more, in words; "" while all is well."""
        return self.file.problem if self.file is not None else ""

    def on_commit(self, committed: Callable[[bool], None]) -> None:
        """Call it after each commit, on the committing thread, with whether gateways have something
        new to be told: the way to wake pumps in this process. Others poll the counters."""
        self._committed.append(committed)

    def check(self) -> None:
        """Whether the files are those that are open here; brief. Raises DatabaseGone."""
        if self.file is not None:
            with self.answering(), self.engine.connect() as connection:
                self.file.check(connection.info)

    def verify(self) -> None:
        """Look at every page of a SQLite file; blocks. Raises DatabaseDamaged."""
        if self.file is not None:
            self.file.verify()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """One consistent look. Raises DatabaseGone."""
        options: dict[str, Any] = {} if self.is_sqlite else {"isolation_level": "REPEATABLE READ"}
        with (
            self.answering(),
            self.engine.connect() as connection,
            Session(connection.execution_options(**options)) as session,
        ):
            yield session

    @contextmanager
    def change(self, actor: Actor, fence: Fence | None = None) -> Iterator[Transaction]:
        """One transaction: committed when the block ends, rolled back when it raises.

        Raises LostLease when `fence` is not the lease's any more, DatabaseGone; DatabaseDamaged
        also when the file has gone by the time of the commit: then it counts as not made.
        """
        with (
            self.answering(),
            self._writing(),
            self.engine.connect() as connection,
            Session(connection.execution_options(write=True)) as session,
        ):
            if self.file is not None:
                self.file.check_before(connection.info)
            transaction = Transaction(session, actor, utc_now(), fence)
            yield transaction
            session.flush()
            transaction.finish()
            with self._committing(connection):
                session.commit()
        for committed in self._committed:
            committed(transaction.desired)

    def close(self) -> None:
        """Close all connections; one in use now, when it is given back."""
        event.listen(self.engine, "checkin", _close_returned)
        self.engine.dispose()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        if not self.is_sqlite:
            yield
            return
        if not self._turns.acquire(BUSY_MS / 1000):
            raise DatabaseGone(
                f"the database {self.name} is busy: other changes took more than "
                f"{BUSY_MS // 1000} seconds"
            )
        try:
            yield
        finally:
            self._turns.release()

    def _committing(self, connection: Connection) -> AbstractContextManager[None]:
        return self.file.committing(connection.info) if self.file is not None else nullcontext()

    @contextmanager
    def answering(self) -> Iterator[None]:
        """Turns what the driver raises when nobody answers into DatabaseGone."""
        try:
            yield
        except PoolTimeout as error:
            raise DatabaseGone(
                f"the database {self.name} is busy: no connection became free in time"
            ) from error
        except OperationalError as error:
            if is_full(error.orig):
                raise DatabaseFull(
                    f"the disk of the database {self.name} is full: nothing was changed; free some "
                    "space and try again"
                ) from error
            raise DatabaseGone(f"the database {self.name} does not answer: {error.orig}") from error
        except DBAPIError as error:
            if self.file is not None and is_damage(error.orig):
                self.file.damaged(str(error.orig))
            if error.connection_invalidated:
                raise DatabaseGone(f"the database {self.name} went away: {error.orig}") from error
            raise


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


def _make_engine(url: str, file: SqliteFile | None) -> Engine:
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


def _close_returned(connection: Any, _record: Any) -> None:
    """The pool that has it is nobody's any more."""
    if connection is not None:
        connection.close()


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

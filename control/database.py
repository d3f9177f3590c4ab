"""The database: SQLite by default, PostgreSQL by URL; opened by the control process alone.

Calls block: run them on a thread. `change` is the only way to write.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from control.clock import utc_now
from control.errors import DatabaseGone, Invalid
from control.transaction import Actor, Fence, Transaction

BUSY_MS = 10_000
"""How long a write waits for another process's write to SQLite."""

POOL_SIZE = 8


class Database:
    """One pool of connections. Any thread may use it; `close` it at the end.

    `committed` is called after each commit, on the committing thread, with whether gateways have
    something new to be told: the way to wake pumps in this process. Others poll the counters.
    """

    def __init__(self, url: str, committed: Callable[[bool], None] = lambda _: None) -> None:
        self.url = check_url(url)
        self.committed = committed
        self.engine = _make_engine(self.url)

    @property
    def name(self) -> str:
        """The URL without its password."""
        return make_url(self.url).render_as_string(hide_password=True)

    @property
    def is_sqlite(self) -> bool:
        return self.engine.dialect.name == "sqlite"

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

        Raises LostLease when `fence` is not the lease's any more, DatabaseGone.
        """
        with (
            self.answering(),
            self.engine.connect() as connection,
            Session(connection.execution_options(write=True)) as session,
        ):
            transaction = Transaction(session, actor, utc_now(), fence)
            yield transaction
            session.flush()
            transaction.finish()
            session.commit()
        self.committed(transaction.desired)

    def close(self) -> None:
        self.engine.dispose()

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
            raise DatabaseGone(f"the database {self.name} does not answer: {error.orig}") from error
        except DBAPIError as error:
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


def _make_engine(url: str) -> Engine:
    try:
        if url.startswith("sqlite"):
            return _sqlite(url)
        from control.postgresql import postgresql

        return postgresql(url, POOL_SIZE)
    except (ModuleNotFoundError, NoSuchModuleError):
        raise Invalid(
            "PostgreSQL needs the package psycopg: pip install 'modelyard[postgres]'", "database"
        ) from None


def _sqlite(url: str) -> Engine:
    engine = create_engine(url, pool_size=POOL_SIZE, max_overflow=0, pool_timeout=BUSY_MS / 1000)

    @event.listens_for(engine, "connect")
    def _prepare(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # we say BEGIN ourselves, below
        for pragma in (
            f"busy_timeout = {BUSY_MS}",
            "journal_mode = WAL",
            "synchronous = FULL",  # an accepted push survives the power cut as well
            "foreign_keys = ON",
        ):
            connection.execute(f"PRAGMA {pragma}")

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        write = connection.get_execution_options().get("write")
        connection.exec_driver_sql("BEGIN IMMEDIATE" if write else "BEGIN")

    return engine

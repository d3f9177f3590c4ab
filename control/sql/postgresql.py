"""Connections to PostgreSQL on which no wait is without an end, whatever the server is up to.

A server that has gone is noticed by the sockets. One that hangs answers nothing and closes nothing,
so each wait for it has a deadline of ours, longer than that of any statement.
"""

import time
from collections.abc import Generator
from typing import Any

import psycopg
from sqlalchemy import Connection, Engine, create_engine, event, text

CONNECT_S, STATEMENT_S, ANSWER_S, IDLE_S = 5, 20, 25, 60
"""To connect; of one statement; without a byte of an answer; of a transaction that does nothing,
which is ended so that nobody waits for the rows it holds."""

MIGRATION_S = 3600
"""The longest statement of a migration, which may rewrite a table."""

_SOCKET = {
    "keepalives": 1,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 15_000,
}


class TimeoutConnection(psycopg.Connection[Any]):
    """Closed, and of no more use, once the server has been silent for `answer_s`."""

    answer_s: float = ANSWER_S

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        try:
            return super().wait(_within(gen, self.answer_s), *args, **kwargs)
        except AnswerTimeout:
            self.pgconn.finish()
            raise


class AnswerTimeout(psycopg.OperationalError):
    """The server has not answered in time."""


def postgresql(url: str, pool_size: int) -> Engine:
    """Raises ModuleNotFoundError, NoSuchModuleError."""
    options = {"statement_timeout": STATEMENT_S, "idle_in_transaction_session_timeout": IDLE_S}
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=CONNECT_S,
        pool_pre_ping=True,
        connect_args={
            "connect_timeout": CONNECT_S,
            "options": " ".join(f"-c {name}={seconds}s" for name, seconds in options.items()),
            **_SOCKET,
        },
    )

    @event.listens_for(engine, "do_connect")
    def _connect(_: Any, __: Any, args: Any, settings: Any) -> TimeoutConnection:
        return TimeoutConnection.connect(*args, **settings)

    return engine


def take_time(connection: Connection) -> None:
    """Let the statements of this connection take as long as a migration's may; it is closed after
    use, and does not go back to the pool."""
    driver = connection.connection.driver_connection
    assert isinstance(driver, TimeoutConnection)
    driver.answer_s = MIGRATION_S
    connection.detach()
    for name in ("statement_timeout", "idle_in_transaction_session_timeout"):
        connection.execute(text(f"SET {name} = '{MIGRATION_S}s'"))
    connection.commit()


def _within(waiting: Any, seconds: float) -> Generator[Any, Any, Any]:
    """psycopg's own steps, each of which may wait for so long; it asks a few times a second."""
    try:
        readiness = next(waiting)
        until = time.monotonic() + seconds
        while True:
            ready = yield readiness
            if ready:
                until = time.monotonic() + seconds
            elif time.monotonic() > until:
                raise AnswerTimeout(f"no answer within {seconds:g} s")
            readiness = waiting.send(ready)
    except StopIteration as ended:
        return ended.value

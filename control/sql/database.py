"""The database, and the one way to change it: rows, their event and their audit row in one commit.

Opened by the control process alone. Calls block: run them on a thread.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from sqlalchemy import Connection, event, select, text, update
from sqlalchemy.engine import make_url
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.exc import TimeoutError as PoolTimeout
from sqlalchemy.orm import Session

from control.clock import utc_now
from control.errors import DatabaseFull, DatabaseGone, LostLease, Stale
from control.sql.engines import BUSY_MS, check_url, make_engine, sqlite_path
from control.sql.sqlite_file import SqliteFile, is_damage, is_full
from control.sql.writer_queue import WriterQueue
from control.tables import Audit, Counter, Event, Lease

Facts = Mapping[str, Any]
"""JSON-able facts. Never a secret: what is here is shown to everybody who may read events."""


@dataclass(frozen=True, slots=True)
class Actor:
    """Who makes a change: `principal` e.g. "user:ada" or "system:deployer", `via` which way
    ("api", "cli", "console", "git", "system"), `address` the peer's, "" where there is none."""

    principal: str
    via: str
    address: str = ""


SYSTEM = Actor("system", "system")

COMMITTED, EVENT, DESIRED = "modelyard_committed", "event", "desired"
"""The channel of PostgreSQL on which each commit with an event is said, as one of these: the latter
where gateways have something new to be told. See `control.sql.channels`."""

BOOT = "boot"
"""In the facts of a session: the database's `boot`."""

NOTIFY = text("SELECT pg_notify(:channel, :payload)")


@dataclass(frozen=True, slots=True)
class Fence:
    """Proof of a lease: `number` is compared with the lease's row when the change commits."""

    lease: str
    number: int


@dataclass(slots=True)
class Transaction:
    """Made by `Database.change`; `session` is SQLAlchemy's, commit is its maker's.

    Call `changed` once for every change; a transaction that changes rows without it is a bug that
    the test-suite looks for.
    """

    session: Session
    actor: Actor
    now: datetime
    fence: Fence | None = None
    desired: bool = False
    events: list[int] = field(default_factory=list)

    def alone(self) -> None:
        """Wait for the changes before this one: what is looked up from here on stays true until
        the commit. Take it before any other row lock, or two changes may wait for each other."""
        turn = select(Counter.value).where(Counter.name == "event").with_for_update()
        self.session.execute(turn)

    def changed(
        self, action: str, subject: str, before: Facts | None, after: Facts | None, **data: Any
    ) -> int:
        """Record the change as event and audit row; the event's id.

        `action` is the event's kind as well, e.g. "alias.moved"; `subject` e.g.
        "alias:digits@champion". `data` adds facts to the event alone.
        """
        number = self.happened(action, subject, before=before, after=after, **data)
        self.session.add(
            Audit(
                id=number,
                at=self.now,
                actor=self.actor.principal,
                via=self.actor.via,
                address=self.actor.address,
                action=action,
                subject=subject,
                before=None if before is None else dict(before),
                after=None if after is None else dict(after),
            )
        )
        return number

    def happened(self, kind: str, subject: str, **data: Any) -> int:
        """Record an event that nobody decided (progress, a load's end); its id."""
        number = self._next("event")
        row = Event(
            id=number,
            at=self.now,
            kind=kind,
            subject=subject,
            actor=self.actor.principal,
            data=data,
        )
        self.session.add(row)
        self.events.append(number)
        return number

    def desire(self) -> None:
        """Gateways are to be told: what they should do has changed."""
        self.desired = True

    def finish(self) -> None:
        """Before the commit: hold the fence against the lease, and number the desired state.

        Raises LostLease.
        """
        if self.fence is not None:
            self._check(self.fence)
        if self.desired:
            self._next("desired")
        if (self.events or self.desired) and self._is_shared():
            said = {"channel": COMMITTED, "payload": DESIRED if self.desired else EVENT}
            self.session.execute(NOTIFY, said)

    def _is_shared(self) -> bool:
        return self.session.get_bind().dialect.name == "postgresql"

    def _check(self, fence: Fence) -> None:
        held = select(Lease.fence).where(Lease.name == fence.lease).with_for_update()
        if self.session.scalar(held) != fence.number:
            raise LostLease(f"the lease '{fence.lease}' has a newer holder than {fence.number}")

    def _next(self, name: str) -> int:
        """The counter's next value; its row stays locked until the commit: ids commit in order."""
        row = update(Counter).where(Counter.name == name).values(value=Counter.value + 1)
        number: int = self.session.scalars(row.returning(Counter.value)).one()
        return number


class Database:
    """One pool of connections. Any thread may use it; `close` it at the end."""

    def __init__(self, url: str) -> None:
        self.url = check_url(url)
        self._committed: list[Callable[[bool], None]] = []
        path = sqlite_path(self.url)
        self.file = SqliteFile(path) if path is not None else None
        self.engine = make_engine(self.url, self.file)
        self.boot = ""
        """Of the control process that has opened it: its server is alive, whatever its row says."""
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
        """Call it after each commit that made an event or desired something, on the committing
        thread, with whether gateways have something new to be told: the way to wake pumps in this
        process. Those of other servers are notified on the channel `COMMITTED`."""
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
            self._session(connection.execution_options(**options)) as session,
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
            self._session(connection.execution_options(write=True)) as session,
        ):
            if self.file is not None:
                self.file.check_before(connection.info)
            transaction = Transaction(session, actor, utc_now(), fence)
            yield transaction
            session.flush()
            transaction.finish()
            with self._committing(connection):
                session.commit()
        if transaction.events or transaction.desired:
            for committed in self._committed:
                committed(transaction.desired)

    def _session(self, connection: Connection) -> Session:
        return Session(connection, info={BOOT: self.boot})

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


def expect_revision(found: int, expected: int | None, what: str) -> None:
    """Compare-and-set: raises Stale when `expected` is given and differs."""
    if expected is not None and expected != found:
        raise Stale(
            f"{what} has been changed meanwhile (revision {found}, you have {expected}); "
            "read it again and repeat the change"
        )


def _close_returned(connection: Any, _record: Any) -> None:
    """The pool that has it is nobody's any more."""
    if connection is not None:
        connection.close()

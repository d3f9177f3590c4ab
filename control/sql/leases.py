"""Who may act alone: a lease by the database's own clock, whose fence number only grows."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError

from control.sql.database import SYSTEM, Database, Fence, Transaction
from control.tables import Lease


def take(database: Database, name: str, holder: str, seconds: float) -> Fence | None:
    """Hold the lease for `seconds` from now: anew, or longer. None while somebody else has it.

    `holder` must be new with every start of a process, so that a predecessor's lease is not taken
    for one's own. Raises DatabaseGone.
    """
    try:
        with database.change(SYSTEM) as transaction:
            return _take(transaction, name, holder, seconds)
    except IntegrityError:
        return None  # two made the row at once; the other one has it


def _take(transaction: Transaction, name: str, holder: str, seconds: float) -> Fence | None:
    session = transaction.session
    now = _database_now(transaction)
    row = session.scalar(select(Lease).where(Lease.name == name).with_for_update())
    until = now + timedelta(seconds=seconds)
    if row is None:
        session.add(Lease(name=name, holder=holder, fence=1, until=until))
        return Fence(name, 1)
    if row.holder != holder:
        if row.until > now:
            return None
        row.holder, row.fence = holder, row.fence + 1
    row.until = until
    return Fence(name, row.fence)


def release(database: Database, name: str, holder: str) -> None:
    """Let the next one have it at once; nothing if it is somebody else's by now."""
    with database.change(SYSTEM) as transaction:
        row = transaction.session.get(Lease, name)
        if row is not None and row.holder == holder:
            row.until = _database_now(transaction)


def inherit(transaction: Transaction, dead: str) -> None:
    """Let go of everything that `dead` holds. Only for a holder that is known to have ended; if it
    has not, its fence says so when it commits."""
    over = datetime.fromtimestamp(0, UTC)
    transaction.session.execute(update(Lease).where(Lease.holder == dead).values(until=over))


def _database_now(transaction: Transaction) -> datetime:
    session = transaction.session
    if session.get_bind().dialect.name == "sqlite":
        return transaction.now  # one machine, one clock
    found = session.scalars(select(func.clock_timestamp())).one()
    assert isinstance(found, datetime)
    return found.astimezone(UTC)

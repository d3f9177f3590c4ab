"""Who may act alone: a lease by the database's own clock, whose fence number only grows."""

from datetime import UTC, datetime, timedelta

from sqlalchemy import func, select, update
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from control.clock import utc_now
from control.sql.database import SYSTEM, Database, Fence, Transaction
from control.tables import Lease


def take(database: Database, name: str, holder: str, seconds: float) -> Fence | None:
    """Hold the lease for `seconds` from now, or for half of that at least where it is held: then
    nothing is written. None while somebody else has it.

    `holder` must be new with every start of a process, so that a predecessor's lease is not taken
    for one's own. Raises DatabaseGone.
    """
    held = _held(database, name, holder, seconds / 2)
    if held is not None:
        return held
    try:
        with database.change(SYSTEM) as transaction:
            return _take(transaction, name, holder, seconds)
    except IntegrityError:
        return None  # two made the row at once; the other one has it


def _held(database: Database, name: str, holder: str, seconds: float) -> Fence | None:
    """The lease where this holder has it for more than `seconds` yet."""
    with database.reading() as session:
        row = session.get(Lease, name)
        if row is None or row.holder != holder:
            return None
        left_s = (row.until - database_now(session)).total_seconds()
        return Fence(name, row.fence) if left_s > seconds else None


def _take(transaction: Transaction, name: str, holder: str, seconds: float) -> Fence | None:
    session = transaction.session
    now = database_now(session)
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
            row.until = database_now(transaction.session)


def inherit(transaction: Transaction, dead: str) -> None:
    """Let go of everything that `dead` holds. Only for a holder that is known to have ended; if it
    has not, its fence says so when it commits."""
    over = datetime.fromtimestamp(0, UTC)
    transaction.session.execute(update(Lease).where(Lease.holder == dead).values(until=over))


def database_now(session: Session) -> datetime:
    """The moment by the clock that all servers of the database share."""
    if session.get_bind().dialect.name == "sqlite":
        return utc_now()  # one machine, one clock
    found = session.scalars(select(func.clock_timestamp())).one()
    assert isinstance(found, datetime)
    return found.astimezone(UTC)

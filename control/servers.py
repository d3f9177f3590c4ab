"""The servers that share this database: which there are, and which are alive."""

from datetime import datetime, timedelta

from sqlalchemy import delete, select
from sqlalchemy.orm import Session

from control.clock import text_of
from control.errors import Conflict, NotFound
from control.sql import leases
from control.sql.database import BOOT, Transaction
from control.tables import LoadState, PendingChange, Server
from control.views import ServerView

BEAT_S, ALONE_BEAT_S = 5.0, 900.0
"""How often a server says that it is there: to those that share its database, and to none."""

ALIVE_S = 20.0
"""A server that has been silent for longer is taken for dead."""


def register(
    tx: Transaction, server_id: str, boot: str, version: str, admin_url: str
) -> ServerView:
    """A control process has started; whoever had this id before learns so at its next beat.

    There is one at a time of a server, so that its predecessor has ended, and holds nothing.
    """
    tx.alone()
    row = tx.session.get(Server, server_id)
    if row is None:
        row = Server(id=server_id)
        tx.session.add(row)
    else:
        leases.inherit(tx, row.boot)
    row.boot, row.version, row.admin_url = boot, version, admin_url
    row.started_at = row.seen_at = tx.now
    tx.happened("server.started", f"server:{server_id}", version=version, admin_url=admin_url)
    return _view(tx.session, row, tx.now)


def heartbeat(tx: Transaction, server_id: str, boot: str) -> bool:
    """Still there. False when another process has registered with this id, or it was forgotten."""
    row = tx.session.get(Server, server_id)
    if row is None or row.boot != boot:
        return False
    row.seen_at = tx.now
    return True


def list_servers(session: Session, now: datetime) -> list[ServerView]:
    """By id."""
    return [_view(session, row, now) for row in session.scalars(select(Server).order_by(Server.id))]


def alive(session: Session, now: datetime) -> frozenset[str]:
    """Ids of the servers whose heartbeats are recent."""
    return frozenset(one.id for one in list_servers(session, now) if one.alive)


def others_alive(session: Session, boot: str, now: datetime) -> bool:
    """Whether a server is alive whose control process is not the one of `boot`."""
    rows = session.scalars(select(Server).where(Server.boot != boot))
    return any(_is_alive(session, row, now) for row in rows)


def forget(tx: Transaction, server_id: str) -> None:
    """Remove a dead server and what it said. Raises NotFound, Conflict while it is alive."""
    tx.alone()
    row = tx.session.get(Server, server_id)
    if row is None:
        raise NotFound(f"there is no server '{server_id:.80}'")
    if _is_alive(tx.session, row, tx.now):
        raise Conflict(f"the server '{server_id}' is alive; stop it first")
    tx.session.execute(delete(LoadState).where(LoadState.server_id == server_id))
    tx.session.execute(delete(PendingChange).where(PendingChange.server_id == server_id))
    tx.session.delete(row)
    before = {"admin_url": row.admin_url, "seen_at": text_of(row.seen_at)}
    tx.changed("server.forgotten", f"server:{server_id}", before, None)


def _is_alive(session: Session, row: Server, now: datetime) -> bool:
    """Who asks is, also where it has not written so lately: nobody else reads its database."""
    return row.boot == session.info.get(BOOT) or now - row.seen_at <= timedelta(seconds=ALIVE_S)


def _view(session: Session, row: Server, now: datetime) -> ServerView:
    return ServerView(
        id=row.id,
        version=row.version,
        admin_url=row.admin_url,
        started_at=row.started_at,
        seen_at=now if row.boot == session.info.get(BOOT) else row.seen_at,
        alive=_is_alive(session, row, now),
    )

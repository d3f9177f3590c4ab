"""What the gateways last said of each version, server by server."""

from collections.abc import Collection, Iterable

from sqlalchemy import select
from sqlalchemy.orm import Session

from control.sql.database import Transaction
from control.tables import LoadState
from control.text import stored
from control.views import LoadView

LONGEST_REASON, LONGEST_NAME = 4096, 255

_COLUMNS = (
    LoadState.server_id,
    LoadState.model,
    LoadState.version,
    LoadState.state,
    LoadState.reason,
    LoadState.at,
)
"""As `LoadView` takes them."""

Row = tuple[str, int, str, str]
"""Model, version (0: the model as a whole), state, reason."""


def record(tx: Transaction, server_id: str, rows: Iterable[Row]) -> int:
    """Take what a server says as all there is on it; how many versions are in another state.

    Each difference is an event: "load.changed", or "load.gone" for what it no longer mentions.
    """
    told = {(row[0][:LONGEST_NAME], row[1]): row for row in map(_clean, rows)}
    mine = select(LoadState).where(LoadState.server_id == server_id)
    known = {(row.model, row.version): row for row in tx.session.scalars(mine)}
    changed = [row for key, row in told.items() if _differs(known.get(key), row)]
    gone = [row for key, row in known.items() if key not in told]
    if not changed and not gone:
        return 0
    tx.alone()
    for row in changed:
        _take(tx, server_id, known.get((row[0], row[1])), row)
    for old in gone:
        tx.session.delete(old)
        tx.happened("load.gone", _subject(old.model), server=server_id, version=old.version)
    return len(changed) + len(gone)


def states(session: Session, models: Collection[str] | None = None) -> list[LoadView]:
    """Of all servers, or of `models` alone, by model, version and server."""
    wanted = select(*_COLUMNS)  # rows, not objects: a page of 600 versions asks for them
    if models is not None:
        wanted = wanted.where(LoadState.model.in_(models))
    by = (LoadState.model, LoadState.version, LoadState.server_id)
    return [LoadView(*row) for row in session.execute(wanted.order_by(*by))]


def _clean(row: Row) -> Row:
    model, version, state, reason = row
    return stored(model, LONGEST_NAME), version, state, stored(reason, LONGEST_REASON)


def _differs(known: LoadState | None, row: Row) -> bool:
    return known is None or (known.state, known.reason) != (row[2], row[3])


def _take(tx: Transaction, server_id: str, known: LoadState | None, row: Row) -> None:
    model, version, state, reason = row
    if known is None:
        known = LoadState(server_id=server_id, model=model, version=version)
        tx.session.add(known)
    known.state, known.reason, known.at = state, reason, tx.now
    facts = {"server": server_id, "version": version, "state": state, "reason": reason}
    tx.happened("load.changed", _subject(model), **facts)


def _subject(model: str) -> str:
    return f"model:{model}"[:LONGEST_NAME]

"""What the gateways last said of each version, server by server: its load state and its health."""

from collections.abc import Collection, Iterable
from datetime import UTC, datetime

from sqlalchemy import select
from sqlalchemy.orm import Session

from control.clock import text_of
from control.health import DEGRADED, FAILING, LOADING, READY, VersionHealth, of_load
from control.sql.database import Transaction
from control.tables import LoadState
from control.text import stored
from control.views import HealthView, LoadView

LONGEST_REASON, LONGEST_NAME = 4096, 255

_COLUMNS = (
    LoadState.server_id,
    LoadState.model,
    LoadState.version,
    LoadState.state,
    LoadState.reason,
    LoadState.at,
    LoadState.health,
    LoadState.health_code,
    LoadState.health_reason,
    LoadState.health_since,
)
"""As `LoadView` takes them, the last four as `HealthView` does."""

Row = (
    tuple[str, int, str, str]
    | tuple[str, int, str, str, VersionHealth | None]
    | tuple[str, int, str, str, VersionHealth | None, float]
)
"""Model, version (0: the model as a whole), state, reason, health where the gateway judges it; of
one that does not, the load state is all there is to say. Last, when what answers was loaded, in
seconds since the epoch, 0 where that is not said."""

_Told = tuple[str, int, str, str, VersionHealth, datetime | None]
_Health = tuple[str, str, str, datetime]


def record(tx: Transaction, server_id: str, rows: Iterable[Row]) -> int:
    """Take what a server says as all there is on it; how many versions are in another state.

    Each difference is an event: "load.changed", or "load.gone" for what it no longer mentions;
    "load.reloaded" for what is as it was, from what was loaded since;
    "model.failing", "model.degraded" or "model.recovered" once for each time that what a loaded
    version answers turned worse, or well again. That only the sentence of a reason changed is none.
    """
    reported = {(row[0], row[1]): row for row in (_clean(row, tx.now) for row in rows)}
    mine = select(LoadState).where(LoadState.server_id == server_id)
    before = {(row.model, row.version): row for row in tx.session.scalars(mine)}
    changed = [row for key, row in reported.items() if _differs(before.get(key), row)]
    judged = [row for key, row in reported.items() if _is_judged_anew(before.get(key), row)]
    loaded = [row for key, row in reported.items() if _is_loaded_anew(before.get(key), row)]
    gone = [row for key, row in before.items() if key not in reported]
    if not (changed or gone or judged or loaded):
        return 0
    tx.alone()
    for row in loaded:
        _note_load(tx, server_id, before[row[0], row[1]], row)
    for row in changed:
        key = row[0], row[1]
        before[key] = _take(tx, server_id, before.get(key), row)
    for row in judged:
        _judge(tx, server_id, before[row[0], row[1]], row)
    for old in gone:
        tx.session.delete(old)
        tx.happened("load.gone", _subject(old.model), server=server_id, version=old.version)
    return len(changed) + len(gone)


def states(session: Session, models: Collection[str] | None = None) -> list[LoadView]:
    """Of all servers, or of `models` alone, by model, version and server."""
    query = select(*_COLUMNS)  # rows, not objects: a page of 600 versions asks for them
    if models is not None:
        query = query.where(LoadState.model.in_(models))
    by = (LoadState.model, LoadState.version, LoadState.server_id)
    return [
        LoadView(*row[:6], HealthView(row[6], row[7], row[8], row[9]))
        for row in session.execute(query.order_by(*by))
    ]


def _clean(row: Row, now: datetime) -> _Told:
    model, version, state, reason = row[:4]
    health = row[4] if len(row) >= 5 else None
    return (
        stored(model, LONGEST_NAME),
        version,
        state,
        stored(reason, LONGEST_REASON),
        health or of_load(state, stored(reason, LONGEST_REASON), now.timestamp()),
        datetime.fromtimestamp(row[5], UTC) if len(row) == 6 and row[5] else None,
    )


def _differs(before: LoadState | None, row: _Told) -> bool:
    return before is None or (before.state, before.reason) != (row[2], row[3])


def _is_judged_anew(known: LoadState | None, row: _Told) -> bool:
    if known is None:
        return True
    health = row[4]
    before = known.health, known.health_code, known.health_reason
    return before != (health.state, health.code, stored(health.reason, LONGEST_REASON))


def _is_loaded_anew(known: LoadState | None, row: _Told) -> bool:
    """Also of one of which it was not known when it was loaded."""
    return known is not None and row[5] is not None and row[5] != known.loaded_at


def _note_load(tx: Transaction, server_id: str, known: LoadState, row: _Told) -> None:
    """A reload that changes the state as well, or that ends another one's, is told by that."""
    before, known.loaded_at = known.loaded_at, row[5]
    if before is not None and not _differs(known, row):
        facts = {"server": server_id, "version": row[1], "state": row[2]}
        tx.happened("load.reloaded", _subject(row[0]), **facts)


def _take(tx: Transaction, server_id: str, before: LoadState | None, row: _Told) -> LoadState:
    model, version, state, reason = row[:4]
    if before is None:
        before = LoadState(
            server_id=server_id, model=model, version=version, health="", health_code="",
            health_reason="", health_since=tx.now, loaded_at=row[5],
        )  # fmt: skip
        tx.session.add(before)
    before.state, before.reason, before.at = state, reason, tx.now
    facts = {"server": server_id, "version": version, "state": state, "reason": reason}
    tx.happened("load.changed", _subject(model), **facts)
    return before


_JUDGED = {FAILING: "model.failing", DEGRADED: "model.degraded", READY: "model.recovered"}


def _judge(tx: Transaction, server_id: str, known: LoadState, row: _Told) -> None:
    """A version that was FAILED or LOADING and is READY did not recover, its load tells of that;
    and one that failed before its server was restarted, as it does now, is no news."""
    model, version, health = row[0], row[1], row[4]
    before, state = (known.health, known.health_code), health.state
    since = datetime.fromtimestamp(health.since, UTC)
    is_old = before[0] == LOADING and since < known.health_since
    known.health, known.health_code = health.state, health.code
    known.health_reason = stored(health.reason, LONGEST_REASON)
    known.health_since = since
    turned = before != (health.state, health.code) and state in _JUDGED and not is_old
    if turned and (state != READY or before[0] in (FAILING, DEGRADED)):
        tx.happened(
            _JUDGED[state],
            _subject(model),
            server=server_id,
            version=version,
            before=before[0],
            state=health.state,
            reason_code=health.code,
            reason=known.health_reason,
            since=text_of(since),
        )


def _subject(model: str) -> str:
    return f"model:{model}"[:LONGEST_NAME]

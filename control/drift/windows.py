"""Windows of drift into the database, merged by the hour, read for a stretch of time, forgotten."""

from collections.abc import Collection, Iterator
from typing import NamedTuple

from sqlalchemy import delete, func, select
from sqlalchemy.dialects import postgresql, sqlite
from sqlalchemy.orm import Session

from control.drift.label_cache import LabelCache
from control.drift.merge import merged
from control.drift.packing import pack_drift, unpack_drift
from control.drift.points import DriftWindow, VersionDrift
from control.drift.tables import DriftWatch, DriftWindowRow
from control.sql.database import Transaction

HOUR_S, DAY_S = 3600, 86_400
KEEP_S = 30 * DAY_S

MERGE_AFTER_S = DAY_S
"""How long after its end an hour is merged. Windows of an hour's terms and phases of rollouts begin
at any minute, and a merged hour counts whole or not at all."""

USUAL_LIMIT_BYTES = 256 * 2**20
"""Of the database, unless a setting says otherwise."""

_Row = DriftWindowRow


def store_window(tx: Transaction, window: DriftWindow) -> None:
    """Keep what it has of models that are watched; what is there already is left as it is."""
    watched = set(tx.session.scalars(select(DriftWatch.model)))
    rows = [
        {
            "model": one.model,
            "version": one.version,
            "at": window.at,
            "server_id": window.server,
            "boot": window.boot,
            "span_s": window.span_s,
            "payload": pack_drift(one),
        }
        for one in window.rows
        if one.model in watched and one.requests
    ]
    if rows:
        on_sqlite = tx.session.get_bind().dialect.name == "sqlite"
        statement = (sqlite if on_sqlite else postgresql).insert(_Row)
        tx.session.execute(statement.on_conflict_do_nothing(), rows)


def read_windows(
    session: Session, model: str, version: int, since: float, until: float
) -> VersionDrift:
    """All that was counted of a version in the windows whose middle lies between both moments."""
    middle = _Row.at + _Row.span_s / 2
    wanted = select(_Row.payload).where(
        _Row.model == model, _Row.version == version, middle >= since, middle < until
    )
    return merged(map(unpack_drift, session.scalars(wanted.order_by(_Row.at))), model, version)


def read_labels(session: Session, model: str, version: int, since: float) -> VersionDrift:
    """The labels alone that a version has given since a moment."""
    middle = _Row.at + _Row.span_s / 2
    wanted = select(_Row.payload).where(
        _Row.model == model, _Row.version == version, middle >= since
    )
    return merged(map(_labels.labels_in, session.scalars(wanted.order_by(_Row.at))), model, version)


_labels = LabelCache()


def versions_between(session: Session, model: str, since: float, until: float) -> list[int]:
    """Of which anything was counted, the newest first."""
    middle = _Row.at + _Row.span_s / 2
    wanted = select(_Row.version).where(_Row.model == model, middle >= since, middle < until)
    return sorted(session.scalars(wanted.distinct()), reverse=True)


class _Hour(NamedTuple):
    model: str
    version: int
    start: int


def merge_hour(tx: Transaction) -> bool:
    """Make one row of the oldest hour that is over, of one version; whether there was one. Call it
    until there is none."""
    hour = _oldest_hour(tx.session, int(tx.now.timestamp()))
    if hour is None:
        return False
    mine = (
        _Row.model == hour.model,
        _Row.version == hour.version,
        _Row.at >= hour.start,
        _Row.at < hour.start + HOUR_S,
    )
    payloads = tx.session.scalars(select(_Row.payload).where(*mine).order_by(_Row.at)).all()
    whole = merged(map(unpack_drift, payloads), hour.model, hour.version)
    tx.session.execute(delete(_Row).where(*mine))
    tx.session.add(
        _Row(
            model=hour.model,
            version=hour.version,
            at=hour.start,
            server_id="",
            boot="",
            span_s=HOUR_S,
            payload=pack_drift(whole),
        )
    )
    tx.session.flush()
    return True


def _oldest_hour(session: Session, now: int) -> _Hour | None:
    over = now - MERGE_AFTER_S - HOUR_S
    wanted = (
        select(_Row.model, _Row.version, _Row.at)
        .where(_Row.server_id != "", _Row.at < over)
        .order_by(_Row.at)
        .limit(1)
    )
    found = session.execute(wanted).first()
    if found is None:
        return None
    start = found[2] - found[2] % HOUR_S
    return _Hour(found[0], found[1], start) if start + HOUR_S + MERGE_AFTER_S <= now else None


def windows_size(session: Session) -> int:
    """Bytes of all packed windows."""
    return int(session.scalar(select(func.coalesce(func.sum(func.length(_Row.payload)), 0))) or 0)


def forget_windows(tx: Transaction, limit_bytes: int, keep_s: int = KEEP_S) -> None:
    """Remove what is older than it is kept, and the oldest until the rest fits."""
    now = int(tx.now.timestamp())
    tx.session.execute(delete(_Row).where(_Row.at < now - keep_s))
    excess = windows_size(tx.session) - limit_bytes
    for at, size in _oldest_first(tx.session) if excess > 0 else ():
        if excess <= 0:
            break
        tx.session.execute(delete(_Row).where(_Row.at == at))
        excess -= size


def _oldest_first(session: Session) -> Iterator[tuple[int, int]]:
    size = func.sum(func.length(_Row.payload))
    rows = session.execute(select(_Row.at, size).group_by(_Row.at).order_by(_Row.at)).all()
    return ((at, int(length)) for at, length in rows)


def forget_model(tx: Transaction, models: Collection[str]) -> None:
    """Remove all that was counted of them."""
    tx.session.execute(delete(_Row).where(_Row.model.in_(models)))

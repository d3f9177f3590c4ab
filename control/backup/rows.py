"""All rows as lines of JSON: written in one consistent look, read into an empty database.

    {"backup": "modelyard", "format": 1, "schema": "0001", "at": "2026-11-21T04:24:00.125Z"}
    ["user", {"id": "…", "name": "ada", …}]
    …
    {"counts": {"user": 1, …}}
    {"sha256": "…"}                     over all bytes before this line

Passwords and tokens are in it as hashes only; the secret that signs short-lived tokens is left out.
URLs and secrets of webhooks are in it as they are: a restored server goes on sending.
"""

import base64
import hashlib
import json
from collections import Counter as Tally
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime
from typing import Any, Protocol

from alembic.runtime.migration import MigrationContext
from sqlalchemy import Connection, LargeBinary, Row, delete, func, insert, select, update
from sqlalchemy import Table as SqlTable
from sqlalchemy.exc import DataError, IntegrityError
from sqlalchemy.orm import Session

from control.all_tables import Table
from control.clock import text_of, utc_now
from control.errors import Conflict, Invalid
from control.jobs.unfinished import wait_again
from control.sql.database import SYSTEM, Database, Transaction
from control.sql.store import SECRET
from control.tables import Counter, Meta, Moment

FORMAT = 1
AT_ONCE = 1000
"""Rows that are held in memory."""

AHEAD = 1_000_000
"""Counters go on this much later in a restored database: nobody who saw numbers that were given
out after the backup (a gateway its desired state, a client its events) takes new ones for old."""

Counts = dict[str, int]
"""Table → rows."""


class Sink(Protocol):
    """Where lines go, e.g. an open file."""

    def write(self, content: bytes, /) -> object: ...


def dump(session: Session, out: Sink) -> Counts:
    """Write every row that this session sees; how many per table."""
    written = _HashingWriter(out)
    head = {"backup": "modelyard", "format": FORMAT, "schema": _schema(session.connection())}
    written.line({**head, "at": text_of(utc_now())})
    counts: Counts = {}
    for table in _backed_up():
        counts[table.name] = 0
        for row in _rows(session, table):
            written.line([table.name, _plain(table, row)])
            counts[table.name] += 1
    written.line({"counts": counts})
    out.write(_line({"sha256": written.hasher.hexdigest()}))
    return counts


def load(database: Database, lines: Iterable[bytes]) -> Counts:
    """Read what `dump` wrote into a migrated database in which there is nothing yet.

    All or nothing; jobs that ran or were published wait anew, since their work is not in a backup.
    Raises Invalid when lines are missing or changed, or of another schema;
    Conflict when there is something in the database already.
    """
    with database.change(SYSTEM) as tx:
        check_unused(tx.session)
        tx.session.execute(delete(Counter))
        try:
            counts = _load(tx, iter(lines))
        except (IntegrityError, DataError) as error:
            raise Invalid(f"the backup contradicts itself: {error.orig}", "backup") from error
        wait_again(tx)
        tx.session.execute(update(Counter).values(value=Counter.value + AHEAD))
        tx.changed("backup.restored", "server", None, {"rows": counts})
        tx.desire()
    return counts


def check_unused(session: Session) -> None:
    """Raises Conflict naming the first table that has rows, counters aside."""
    for table in _backed_up():
        if table.name == Counter.__tablename__:
            continue
        if session.scalar(select(func.count()).select_from(table)):
            raise Conflict(
                f"the database is in use (there are rows in '{table.name}'); a backup is restored "
                "into an empty one"
            )


def _backed_up() -> list[SqlTable]:
    return [one for one in Table.metadata.sorted_tables if one.info.get("backed_up", True)]


class _HashingWriter:
    def __init__(self, out: Sink) -> None:
        self.out, self.hasher = out, hashlib.sha256()

    def line(self, value: Any) -> None:
        content = _line(value)
        self.hasher.update(content)
        self.out.write(content)


def _line(value: Any) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode() + b"\n"


def _schema(connection: Connection) -> str:
    return MigrationContext.configure(connection).get_current_revision() or ""


def _rows(session: Session, table: SqlTable) -> Iterator[Row[Any]]:
    query = select(table).order_by(*table.primary_key)
    if table.name == Meta.__tablename__:
        query = query.where(Meta.key != SECRET)
    return iter(session.execute(query, execution_options={"yield_per": AT_ONCE}))


def _plain(table: SqlTable, row: Row[Any]) -> dict[str, Any]:
    return {name: _json(value) for name, value in zip(table.columns.keys(), row, strict=True)}


def _json(value: Any) -> Any:
    """Moments in ISO 8601, bytes in base64, all else as it is."""
    if isinstance(value, datetime):
        return value.isoformat()
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _load(tx: Transaction, lines: Iterator[bytes]) -> Counts:
    hasher = hashlib.sha256()
    _check_head(tx.session, _parsed(lines, hasher))
    tally: Tally[str] = Tally()
    name, waiting = "", list[dict[str, Any]]()
    while isinstance(line := _parsed(lines, hasher), list):
        table = _table(line)
        if waiting and (table.name != name or len(waiting) == AT_ONCE):
            tx.session.execute(insert(Table.metadata.tables[name]), waiting)
            waiting = []
        name = table.name
        waiting.append(_row(table, line[1]))
        tally[name] += 1
    if waiting:
        tx.session.execute(insert(Table.metadata.tables[name]), waiting)
    whole = {"sha256": hasher.hexdigest()}
    if line != {"counts": _all(tally)} or _parsed(lines, hasher) != whole:
        raise Invalid("the backup's rows are not those that were written into it", "backup")
    return _all(tally)


def _all(tally: Mapping[str, int]) -> Counts:
    return {table.name: tally.get(table.name, 0) for table in _backed_up()}


def _parsed(lines: Iterator[bytes], hasher: "hashlib._Hash") -> Any:
    line = next(lines, b"")
    hasher.update(line)
    try:
        return json.loads(line)
    except ValueError:
        what = "ends early" if not line else "has a line that is not JSON"
        raise Invalid(f"the backup {what}: it is damaged", "backup") from None


def _check_head(session: Session, head: Any) -> None:
    if not isinstance(head, dict) or head.get("backup") != "modelyard":
        raise Invalid("this is no backup of Modelyard's", "backup")
    schema = _schema(session.connection())
    if (head.get("format"), head.get("schema")) != (FORMAT, schema):
        raise Invalid(
            f"the backup has format {head.get('format')} and schema {head.get('schema')}, this "
            f"build reads {FORMAT} and {schema}; restore it with the build that wrote it",
            "backup",
        )


def _table(line: list[Any]) -> SqlTable:
    name, row = line if len(line) == 2 else (None, None)
    table = Table.metadata.tables.get(name) if isinstance(name, str) else None
    if table is None or not isinstance(row, dict) or row.keys() != {*table.columns.keys()}:
        raise Invalid(f"the backup has a row that fits no table: {line!r:.120}", "backup")
    return table


def _row(table: SqlTable, raw: dict[str, Any]) -> dict[str, Any]:
    return {name: _value(table, name, value) for name, value in raw.items()}


def _value(table: SqlTable, name: str, value: Any) -> Any:
    kind = table.columns[name].type
    if value is not None and isinstance(kind, LargeBinary):
        return _bytes(value)
    if value is None or not isinstance(kind, Moment):
        return value
    try:
        return datetime.fromisoformat(value)
    except (ValueError, TypeError):
        raise Invalid(f"the backup has '{value!r:.40}' where a time belongs", "backup") from None


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (ValueError, TypeError):
        raise Invalid(f"the backup has '{value!r:.40}' where base64 belongs", "backup") from None

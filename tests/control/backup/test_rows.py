"""All rows as lines, and lines as rows again."""

import json
import re
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from io import BytesIO
from pathlib import Path

import pytest

from control import loads, servers
from control.access import sessions, tokens, users
from control.access.scopes import Role
from control.backup import rows as backup
from control.clock import utc_now
from control.deployments import aliases
from control.errors import Conflict, Invalid
from control.jobs.claims import AttemptDone, claim, finish
from control.jobs.policy.admission import WorkerIdentity
from control.jobs.tables import JobReportRow
from control.rollout_tables import RolloutMomentRow
from control.sql import leases, store
from control.sql.database import Database
from control.sql.migrate import migrate
from control.tables import Audit, Counter, Event, Meta, Repository, Table
from support.control import ADA, KINDS, desired_revision, fresh_url, rows, told
from support.control_deploy import deployed, repository, sealed
from support.control_rollout import FAST, begun
from support.jobs import ACCEPTED, ADVICE, enqueued, shown

PASSWORD = "correct horse battery staple"


@pytest.fixture
def used(database: Database) -> Database:
    """With something in nearly every table."""
    repository(database)
    deployed(database, 1, sealed("digits", {1: "é\n", 2: "b"}))
    leases.take(database, "deployer", "me", 60)
    with database.change(ADA) as tx:
        aliases.set_alias(tx, "digits", "champion", 1)
        users.create_user(tx, "ada", Role.ADMIN, PASSWORD)
        sessions.open_session(tx, "ada", "192.0.2.7")
        servers.register(tx, "one", "b1", "0.4", "http://127.0.0.1:8003")
        loads.record(tx, "one", [("digits", 1, "FAILED", "no memory")])
        store.store_id(tx)
        store.secret(tx)
    rollout = begun(database, plan=FAST).id
    with database.change(ADA) as tx:
        tx.session.add(
            RolloutMomentRow(
                rollout_id=rollout, number=7, at=tx.now, moved=True, payload=bytes(range(256))
            )
        )
    return database


@pytest.fixture
def other(migrated_sqlite: Path, tmp_path: Path) -> Iterator[Database]:
    """An empty one."""
    path = shutil.copy(migrated_sqlite, tmp_path / "other.db")
    opened = Database(f"sqlite:///{path}")
    yield opened
    opened.close()


def _dumped(database: Database) -> bytes:
    out = BytesIO()
    with database.reading() as session:
        backup.dump(session, out)
    return out.getvalue()


def _lines(dump: bytes) -> list[bytes]:
    return dump.splitlines(keepends=True)


@contextmanager
def _empty(kind: str, folder: Path) -> Iterator[Database]:
    folder.mkdir(exist_ok=True)
    with fresh_url(kind, folder) as url:
        opened = Database(url)
        migrate(opened)
        yield opened
        opened.close()


def _facts(database: Database, table: type[Table]) -> list[dict[str, object]]:
    names = table.__table__.columns.keys()
    return [{name: getattr(row, name) for name in names} for row in rows(database, table)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_row_comes_back_in_either_kind_of_database(
    used: Database, kind: str, tmp_path: Path
) -> None:
    dump = _dumped(used)
    with _empty(kind, tmp_path / "other") as other:
        counts = backup.load(other, _lines(dump))
        for mapper in Table.registry.mappers:
            table = mapper.class_
            if table in (Counter, Meta, Event, Audit):
                continue
            if not table.__table__.info.get("backed_up", True):
                assert table.__tablename__ not in counts
                continue
            assert _facts(other, table) == _facts(used, table), table.__tablename__
            assert counts[table.__tablename__] == len(_facts(used, table))
        assert _facts(other, Event)[:-1] == _facts(used, Event)
        assert _facts(other, Audit)[:-1] == _facts(used, Audit)


def test_numbers_given_out_after_the_backup_are_not_given_out_again(
    used: Database, other: Database
) -> None:
    revision, last = desired_revision(used), rows(used, Event)[-1].id
    backup.load(other, _lines(_dumped(used)))
    assert desired_revision(other) > revision + backup.AHEAD
    assert rows(other, Event)[-1].id > last + backup.AHEAD
    assert told(other)[-1] == ("backup.restored", "server")


def test_a_backup_holds_hashes_and_no_secret(used: Database, other: Database) -> None:
    with used.change(ADA) as tx:
        text = tokens.create_token(tx, "ada", "ci", ["read"]).text
        secret, store_id = store.secret(tx), store.store_id(tx)
    dump = _dumped(used)
    assert text.encode() not in dump
    assert PASSWORD.encode() not in dump
    assert secret.hex().encode() not in dump
    backup.load(other, _lines(dump))
    with other.reading() as session:
        assert tokens.principal_of(session, text, utc_now()) is not None
        assert users.check_password(session, "ada", PASSWORD) is not None
        assert store.known_store(session) == store_id
    with other.change(ADA) as tx:
        assert store.secret(tx) != secret


def test_what_is_written_meanwhile_is_not_in_it(used: Database) -> None:
    out = BytesIO()
    with used.reading() as session:
        assert session.get(Meta, store.STORE) is not None  # the look begins here
        repository(used, "later")
        counts = backup.dump(session, out)
    assert counts["repository"] == 1
    assert b"later" not in out.getvalue()


def test_a_database_in_use_is_not_overwritten(used: Database) -> None:
    before = _dumped(used)
    with pytest.raises(Conflict, match="the database is in use"):
        backup.load(used, _lines(before))
    assert _lines(_dumped(used))[1:-1] == _lines(before)[1:-1]


def _changed(lines: list[bytes]) -> list[bytes]:
    return [line.replace(b"champion", b"champion2") for line in lines]


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda lines: lines[:-1], "ends early"),
        (lambda lines: lines[:5], "ends early"),
        (lambda lines: [], "ends early"),
        (_changed, "not those that were written"),
        (lambda lines: lines[:3] + lines[4:], "not those that were written|contradicts itself"),
        (lambda lines: lines[:3] + lines[2:], "not those that were written|contradicts itself"),
        (lambda lines: [lines[0], b"\xff\n", *lines[1:]], "not JSON"),
        (lambda lines: [lines[0], b'["push", {}]\n', *lines[1:]], "fits no table"),
        (lambda lines: [lines[0], b"[[], {}]\n", *lines[1:]], "fits no table"),
        (lambda lines: [b'{"backup": "other"}\n', *lines[1:]], "no backup of Modelyard's"),
        (lambda lines: [re.sub(rb'"\d{4}"', b'"0999"', lines[0]), *lines[1:]], "schema 0999"),
        (lambda lines: [lines[0].replace(b'"format":1', b'"format":2'), *lines[1:]], "format 2"),
        (lambda lines: [line.replace(b"-", b"x") for line in lines], "where a time belongs"),
    ],
)
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_a_damaged_backup_restores_nothing(
    used: Database, other: Database, damage: object, message: str
) -> None:
    assert callable(damage)
    with pytest.raises(Invalid, match=message):
        backup.load(other, damage(_lines(_dumped(used))))
    with other.reading() as session:
        backup.check_unused(session)


def test_a_line_is_json_with_its_tables_name(used: Database) -> None:
    lines = [json.loads(line) for line in _lines(_dumped(used))]
    assert lines[0]["schema"].isdigit()
    (row,) = rows(used, Repository)
    assert [line[1]["id"] for line in lines[1:-2] if line[0] == "repository"] == [row.id]


def test_jobs_whose_work_is_not_in_the_backup_wait_anew(
    database: Database, other: Database
) -> None:
    waiting, running, published, ended = (enqueued(database, str(number)) for number in range(4))
    for job, report in ((ended, ADVICE), (published, ACCEPTED), (running, None)):
        held = claim(database, WorkerIdentity(job.id, job.id), job.id)
        assert held is not None
        if report is not None:
            finish(database, held, AttemptDone(report))
    backup.load(other, _lines(_dumped(database)))
    for job in (running, published):
        view = shown(other, job.id)
        assert (view.state, view.attempt, view.machine) == ("queued", 0, "")
        assert "restored from a backup" in view.reason
    assert shown(other, waiting.id) == waiting
    assert shown(other, ended.id).state == "done"
    assert [row.job_id for row in rows(other, JobReportRow)] == [ended.id]
    again = claim(other, WorkerIdentity("new", "new"), published.id)
    assert again is not None
    assert again.fence == 2

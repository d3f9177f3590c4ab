"""Transactions and tables on SQLite and PostgreSQL: what a commit promises, and what ends it."""

import logging
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import insert, select, text
from sqlalchemy.orm import Session

import migrations
from control.errors import DatabaseGone, Invalid
from control.sql.database import Database
from control.sql.engines import check_url
from control.sql.migrate import migrate, revisions
from control.tables import Audit, Event, Meta, Table
from docs.write_settings import ROOT
from support.control import ADA, KINDS, desired_revision, fresh_url, rows, terminate_connections
from support.server import free_ports

WRITERS, CHANGES = 6, 10

on_postgresql = pytest.mark.parametrize("database", ["postgresql"], indirect=True)


def test_a_change_is_its_rows_its_event_and_its_audit_row(database: Database) -> None:
    with database.change(ADA) as tx:
        tx.session.add(Meta(key="colour", value="red"))
        number = tx.changed("colour.set", "colour:1", None, {"to": "red"}, why="because")
    event, audit = rows(database, Event)[0], rows(database, Audit)[0]
    assert tx.events == [event.id] == [audit.id] == [number] == [1]
    assert (event.kind, event.subject, event.actor) == ("colour.set", "colour:1", "user:ada")
    assert event.data == {"before": None, "after": {"to": "red"}, "why": "because"}
    assert (audit.action, audit.before, audit.after) == ("colour.set", None, {"to": "red"})
    assert event.at == audit.at == tx.now
    assert tx.now.tzinfo is not None


def test_a_change_that_raises_leaves_nothing_and_takes_no_number(database: Database) -> None:
    for fails in (True, False):
        with change_that(database, fails) as tx_events:
            assert tx_events == [1]
    assert [row.id for row in rows(database, Event)] == [1]
    assert [row.value for row in rows(database, Meta)] == ["False"]


@contextmanager
def change_that(database: Database, fails: bool) -> Iterator[list[int]]:
    try:
        with database.change(ADA) as tx:
            tx.session.add(Meta(key="fails", value=str(fails)))
            tx.changed("colour.set", "colour:1", None, None)
            tx.desire()
            yield tx.events
            if fails:
                raise RuntimeError("stop")
    except RuntimeError:
        assert fails


def test_whoever_waits_for_changes_hears_of_each_after_its_commit(database: Database) -> None:
    heard: list[tuple[bool, int]] = []
    database.on_commit(lambda desired: heard.append((desired, len(rows(database, Event)))))
    for fails in (False, True):
        with change_that(database, fails):
            pass
        with database.change(ADA) as tx:
            tx.happened("something", "somewhere")
        with database.reading():
            pass
        with database.change(ADA) as tx:
            tx.session.query(Meta).delete()
    assert heard == [(True, 1), (False, 2), (False, 3)]


def test_the_desired_state_gets_one_number_for_each_change_of_it(database: Database) -> None:
    for wishes, expected in (0, 0), (1, 1), (3, 2):
        with database.change(ADA) as tx:
            for _ in range(wishes):
                tx.desire()
        assert desired_revision(database) == expected


def test_a_reader_who_follows_event_ids_misses_none_of_many_writers(database: Database) -> None:
    done = threading.Event()

    def write(number: int) -> None:
        for change in range(CHANGES):
            with database.change(ADA) as tx:
                tx.changed("test.changed", f"{number}", None, {"change": change})
                tx.happened("test.happened", f"{number}")

    def follow() -> list[int]:
        followed: list[int] = []
        while True:
            last_look = done.is_set()
            after = followed[-1] if followed else 0
            with database.reading() as session:
                new = select(Event.id).where(Event.id > after).order_by(Event.id)
                followed += session.scalars(new).all()
            if last_look:
                return followed

    with ThreadPoolExecutor(WRITERS + 1) as pool:
        following = pool.submit(follow)
        try:
            list(pool.map(write, range(WRITERS)))
        finally:
            done.set()
        assert following.result(60) == list(range(1, 2 * WRITERS * CHANGES + 1))


def test_a_reader_sees_one_moment_however_long_it_looks(database: Database) -> None:
    with database.reading() as session:
        assert session.scalars(select(Event.id)).all() == []
        with database.change(ADA) as tx:
            tx.happened("something", "somewhere")
        assert session.scalars(select(Event.id)).all() == []
    assert len(rows(database, Event)) == 1


def test_a_writer_that_waits_too_long_for_another_says_so(database: Database) -> None:
    impatient = Database(database.url)
    wait = "PRAGMA busy_timeout = 50" if database.is_sqlite else "SET lock_timeout = '50ms'"
    with impatient.engine.connect() as connection:  # the pool hands out the same one again
        connection.exec_driver_sql(wait)
        connection.commit()
    with database.change(ADA) as tx:
        tx.happened("something", "somewhere")
        with pytest.raises(DatabaseGone, match="does not answer"), impatient.change(ADA) as other:
            other.happened("something", "somewhere")
    impatient.close()
    assert len(rows(database, Event)) == 1


@on_postgresql
def test_when_the_server_ends_a_change_nothing_is_left_and_the_next_one_works(
    database: Database,
) -> None:
    def change() -> None:
        with database.change(ADA) as tx:
            tx.happened("something", "somewhere")
            tx.session.flush()
            terminate_connections(database)

    with pytest.raises(DatabaseGone, match="modelyard_test"):
        change()
    assert rows(database, Event) == []
    terminate_connections(database)
    with database.change(ADA) as tx:
        assert tx.happened("something", "somewhere") == 1


@on_postgresql
def test_when_the_server_ends_a_reader_the_database_is_gone(database: Database) -> None:
    with pytest.raises(DatabaseGone), database.reading() as session:
        end_and_read(database, session)


def end_and_read(database: Database, session: Session) -> None:
    terminate_connections(database)
    session.scalars(select(Event.id)).all()


def test_tables_of_a_server_that_is_not_there_wait_for_it() -> None:
    nowhere = Database(f"postgresql://ada@127.0.0.1:{free_ports(1)[0]}/none")
    with pytest.raises(DatabaseGone):
        migrate(nowhere)
    nowhere.close()


def test_a_server_that_is_not_there_is_gone_and_its_password_stays_unsaid() -> None:
    nowhere = Database(f"postgresql://ada:secret@127.0.0.1:{free_ports(1)[0]}/none")
    with pytest.raises(DatabaseGone) as gone, nowhere.reading():
        pass
    nowhere.close()
    assert "ada:***@127.0.0.1" in str(gone.value)
    assert "secret" not in str(gone.value)
    assert "secret" not in nowhere.name


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("nonsense", "not a URL"),
        ("", "not a URL"),
        ("mysql://ada:secret@host/db", "cannot be 'mysql'"),
        ("sqlite+aiosqlite://", None),
        ("postgres://host/db", None),
    ],
)
def test_a_url_we_cannot_use_is_refused_without_repeating_it(url: str, said: str | None) -> None:
    if said is None:
        assert check_url(url).partition(":")[0] in ("sqlite", "postgresql+psycopg")
        return
    with pytest.raises(Invalid, match=said) as refused:
        check_url(url)
    assert refused.value.field == "database"
    assert "secret" not in str(refused.value)


def test_migrations_make_exactly_the_tables_there_are(database: Database) -> None:
    with database.engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        assert compare_metadata(context, Table.metadata) == []


def test_a_migrated_database_has_its_counters_and_is_left_alone(database: Database) -> None:
    with database.change(ADA) as tx:
        tx.happened("something", "somewhere")
    migrate(database)
    assert len(rows(database, Event)) == 1
    assert desired_revision(database) == 0


def test_a_database_of_a_later_build_is_used_as_it_is(
    empty_database: Database, caplog: pytest.LogCaptureFixture
) -> None:
    migrate(empty_database)
    with empty_database.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
        connection.execute(insert(Meta).values(key="colour", value="red"))
    with caplog.at_level(logging.WARNING):
        migrate(empty_database)
    assert "is of a later build (9999)" in caplog.text
    assert len(rows(empty_database, Meta)) == 1


def test_revisions_are_what_alembic_finds() -> None:
    scripts = ScriptDirectory(str(Path(migrations.__path__[0])))

    assert revisions() == [script.revision for script in reversed([*scripts.walk_revisions()])]
    assert revisions()[-1] == scripts.get_current_head()


MIGRATING = """
import logging, sys
from control.sql.database import Database
from control.sql.migrate import migrate
logging.basicConfig(level="INFO", stream=sys.stdout)
print("ready", flush=True)
sys.stdin.readline()
database = Database(sys.argv[1])
migrate(database)
database.close()
"""


@pytest.mark.parametrize("kind", KINDS)
def test_processes_that_start_at_once_migrate_once(kind: str, tmp_path: Path) -> None:
    with fresh_url(kind, tmp_path) as url, ExitStack() as stack:
        started = [stack.enter_context(process(url)) for _ in range(3)]
        for one in started:
            assert one.stdout is not None
            assert one.stdout.readline() == "ready\n"
        for one in started:
            assert one.stdin is not None
            one.stdin.write("go\n")
            one.stdin.flush()
        said = "".join(one.communicate(timeout=180)[0] for one in started)
        assert [one.returncode for one in started] == [0, 0, 0], said
        assert said.count("schema migrated from nothing to head") == 1
        database = Database(url)
        assert desired_revision(database) == 0
        database.close()


def process(url: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", MIGRATING, url],
        cwd=ROOT,
        text=True,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )


def test_a_connection_in_use_while_the_database_is_closed_is_closed_when_it_is_given_back(
    database: Database,
) -> None:
    other = Database(database.url)
    with other.engine.connect() as connection:
        raw = connection.connection.dbapi_connection
        assert raw is not None
        other.close()
        raw.cursor().close()
    with pytest.raises(Exception, match="closed"):
        raw.cursor()

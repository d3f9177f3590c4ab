"""A PostgreSQL that takes all and answers nothing: each wait ends, and the next try is fresh."""

from collections.abc import Iterator

import pytest
from sqlalchemy import text

from control.errors import DatabaseGone
from control.sql import postgresql
from control.sql.database import Database
from control.sql.postgresql import MIGRATION_S, STATEMENT_S, TimeoutConnection, take_time
from support.control import ADA, fresh_url
from support.severed import Way, severable

SILENCE_S = 3.0


@pytest.fixture(scope="module")
def way(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Way]:
    with (
        fresh_url("postgresql", tmp_path_factory.mktemp("none")) as url,
        severable(url) as made,
    ):
        yield made


@pytest.fixture
def far(way: Way, monkeypatch: pytest.MonkeyPatch) -> Iterator[Database]:
    """Behind the way, with little patience."""
    monkeypatch.setattr(TimeoutConnection, "answer_s", SILENCE_S)
    monkeypatch.setattr(postgresql, "CONNECT_S", 5)
    opened = Database(way.url)
    yield opened
    way.thaw()
    opened.close()


def look(database: Database) -> object:
    with database.reading() as session:
        return session.scalar(text("SELECT 7"))


def test_a_server_that_hangs_in_a_transaction_is_given_up(far: Database, way: Way) -> None:
    def change() -> None:
        with far.change(ADA) as tx:
            tx.session.execute(text("SELECT 1"))
            way.freeze()
            tx.session.execute(text("SELECT 2"))

    with pytest.raises(DatabaseGone, match=r"no answer within 3 s"):
        change()
    way.thaw()
    assert look(far) == 7


@pytest.mark.slow
def test_a_server_that_hangs_between_two_transactions_is_given_up(far: Database, way: Way) -> None:
    assert look(far) == 7
    way.freeze()
    with pytest.raises(DatabaseGone):
        look(far)
    way.thaw()
    assert look(far) == 7


@pytest.mark.slow
def test_a_server_that_lets_in_and_never_greets_is_given_up(far: Database, way: Way) -> None:
    way.freeze()
    with pytest.raises(DatabaseGone, match="does not answer"):
        look(far)


@pytest.mark.slow
def test_an_answer_that_comes_bit_by_bit_may_take_longer(far: Database) -> None:
    rows = text("SELECT n, pg_sleep(0.3) FROM generate_series(1, 12) n")
    with far.reading() as session:
        found = session.execute(rows, execution_options={"yield_per": 1})
        assert sum(1 for _ in found) == 12


def test_a_statement_has_a_deadline_and_a_migrations_has_its_own(far: Database) -> None:
    with far.engine.connect() as connection:
        assert connection.scalar(text("SHOW statement_timeout")) == f"{STATEMENT_S}s"
        take_time(connection)
        assert connection.scalar(text("SHOW statement_timeout")) == f"{MIGRATION_S // 3600}h"
        connection.execute(text("SELECT pg_sleep(4)"))
    with far.engine.connect() as connection:
        assert connection.scalar(text("SHOW statement_timeout")) == f"{STATEMENT_S}s"

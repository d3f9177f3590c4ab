"""Facts that a database has for good."""

from concurrent.futures import ThreadPoolExecutor

from control.sql import store
from control.sql.database import Database
from support.control import ADA, told


def test_they_are_made_once_by_however_many_servers(database: Database) -> None:
    def ask(_: int) -> tuple[str, bytes]:
        with database.change(ADA) as tx:
            return store.store_id(tx), store.secret(tx)

    with ThreadPoolExecutor(4) as pool:
        answers = set(pool.map(ask, range(4)))
    (kept,) = answers
    assert len(kept[1]) == 32
    with database.reading() as session:
        assert store.known_store(session) == kept[0]


def test_the_secret_is_told_to_nobody(database: Database) -> None:
    with database.change(ADA) as tx:
        store.secret(tx)
    assert told(database) == [("secret.created", "meta:secret")]


def test_a_database_without_a_store_says_so(database: Database) -> None:
    with database.reading() as session:
        assert store.known_store(session) == ""

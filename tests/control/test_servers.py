"""The servers that share a database."""

from datetime import timedelta

import pytest

from control import loads, servers
from control.errors import Conflict, LostLease, NotFound
from control.sql import leases
from control.sql.database import Database, Fence
from control.tables import LoadState, Server
from support.control import ADA, rows


def _register(database: Database, boot: str = "b1") -> servers.ServerView:
    with database.change(ADA) as tx:
        return servers.register(tx, "one", boot, "0.4", "http://127.0.0.1:8003")


def test_a_server_that_beats_is_alive(database: Database) -> None:
    started = _register(database).started_at
    with database.change(ADA) as tx:
        assert servers.heartbeat(tx, "one", "b1")
    with database.reading() as session:
        (view,) = servers.list_servers(session, started + timedelta(seconds=10))
        assert servers.alive(session, started + timedelta(seconds=10)) == {"one"}
        assert servers.alive(session, started + timedelta(seconds=60)) == frozenset()
    assert view.alive
    assert view.admin_url == "http://127.0.0.1:8003"


def test_the_server_that_asks_is_alive_whenever_it_has_last_written(database: Database) -> None:
    hours_later = _register(database).started_at + timedelta(hours=3)
    database.boot = "b1"
    with database.reading() as session:
        (view,) = servers.list_servers(session, hours_later)
        assert servers.alive(session, hours_later) == {"one"}
        assert not servers.others_alive(session, "b1", hours_later)
    assert (view.alive, view.seen_at) == (True, hours_later)


def test_a_predecessor_learns_that_it_was_replaced(database: Database) -> None:
    _register(database, "b1")
    _register(database, "b2")
    with database.change(ADA) as tx:
        assert not servers.heartbeat(tx, "one", "b1")
        assert servers.heartbeat(tx, "one", "b2")
        assert not servers.heartbeat(tx, "two", "b2")


def test_what_a_predecessor_held_is_free_at_once(database: Database) -> None:
    _register(database, "b1")
    held = leases.take(database, "deployer", "b1", 600)
    leases.take(database, "sweeper", "of another server", 600)
    _register(database, "b2")
    assert leases.take(database, "deployer", "b2", 600) == Fence("deployer", 2)
    assert leases.take(database, "sweeper", "b2", 600) is None
    with pytest.raises(LostLease), database.change(ADA, held) as tx:
        tx.happened("something", "somewhere")


def test_a_living_server_is_not_forgotten(database: Database) -> None:
    _register(database)
    with pytest.raises(Conflict, match="'one' is alive"), database.change(ADA) as tx:
        servers.forget(tx, "one")
    with pytest.raises(NotFound, match="no server 'two'"), database.change(ADA) as tx:
        servers.forget(tx, "two")


def test_a_dead_server_is_forgotten_with_what_it_said(database: Database) -> None:
    _register(database)
    with database.change(ADA) as tx:
        loads.record(tx, "one", [("m", 1, "READY", "")])
        row = tx.session.get(Server, "one")
        assert row is not None
        row.seen_at = tx.now - timedelta(hours=1)
    with database.change(ADA) as tx:
        servers.forget(tx, "one")
    assert rows(database, Server) == rows(database, LoadState) == []

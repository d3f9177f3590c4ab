"""What gateways say of the versions they have."""

from control import loads
from control.sql.database import Database
from control.tables import Event
from support.control import ADA, rows, told


def _record(database: Database, *rows: loads.Row, server: str = "one") -> int:
    with database.change(ADA) as tx:
        return loads.record(tx, server, rows)


def test_what_a_server_says_replaces_what_it_said(database: Database) -> None:
    assert _record(database, ("m", 1, "LOADING", ""), ("m", 2, "READY", "")) == 2
    assert _record(database, ("m", 1, "READY", "")) == 2
    with database.reading() as session:
        (view,) = loads.states(session)
    assert (view.server, view.model, view.version, view.state) == ("one", "m", 1, "READY")
    assert told(database)[2:] == [("load.changed", "model:m"), ("load.gone", "model:m")]


def test_the_same_again_is_no_event(database: Database) -> None:
    _record(database, ("m", 1, "FAILED", "weights missing"))
    assert _record(database, ("m", 1, "FAILED", "weights missing")) == 0
    assert len(told(database)) == 1


def test_servers_do_not_touch_each_others_states(database: Database) -> None:
    _record(database, ("m", 1, "READY", ""))
    _record(database, ("m", 1, "FAILED", "no memory"), server="two")
    _record(database, server="one")
    with database.reading() as session:
        assert [(one.server, one.reason) for one in loads.states(session, ["m"])] == [
            ("two", "no memory")
        ]
        assert loads.states(session, ["other"]) == []


def test_a_reason_that_no_database_can_keep_is_cleaned(database: Database) -> None:
    name = "m" * 255
    _record(database, (name, 0, "FAILED", "\0a\udcff" + "x" * 5000))
    (event,) = rows(database, Event)
    assert event.data["reason"].startswith("a?xxx")
    assert len(event.data["reason"]) == loads.LONGEST_REASON
    assert len(event.subject) == 255
    assert _record(database, (name, 0, "FAILED", "\0a\udcff" + "x" * 5000)) == 0

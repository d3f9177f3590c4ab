"""What gateways say of the versions they have."""

from control import loads
from control.health import VersionHealth
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


def health(state: str, code: str, reason: str = "", since: float = 10.0) -> VersionHealth:
    return VersionHealth(state, code, reason, since)


def kinds(database: Database) -> list[str]:
    return [kind for kind, _ in told(database)]


def test_what_a_version_answers_is_told_once_when_it_turns_worse_and_when_well_again(
    database: Database,
) -> None:
    ok = ("m", 1, "READY", "", health("READY", "ok"))
    failing = ("m", 1, "READY", "", health("FAILING", "errors", "61 of 61 failed", 30.0))
    worded = ("m", 1, "READY", "", health("FAILING", "errors", "99 of 99 failed", 30.0))
    for row in (ok, failing, failing, worded, ok):
        _record(database, row)
    assert kinds(database) == ["load.changed", "model.failing", "model.recovered"]
    _, event, _ = rows(database, Event)
    assert event.data == {
        "server": "one", "version": 1, "before": "READY", "state": "FAILING",
        "reason_code": "errors", "reason": "61 of 61 failed", "since": "1970-01-01T00:00:30.000Z",
    }  # fmt: skip


def test_the_latest_sentence_of_a_reason_and_since_when_it_is_so_are_kept(
    database: Database,
) -> None:
    for reason in ("61 of 61 failed", "99 of 99 failed"):
        _record(database, ("m", 1, "READY", "", health("FAILING", "errors", reason, 30.0)))
    with database.reading() as session:
        (view,) = loads.states(session)
    assert (view.state, view.health.state, view.health.reason) == (
        "READY", "FAILING", "99 of 99 failed",
    )  # fmt: skip
    assert view.health.since.timestamp() == 30.0


def test_a_version_that_failed_before_its_server_was_restarted_is_not_told_again(
    database: Database,
) -> None:
    failing = ("m", 1, "READY", "", health("FAILING", "errors", "61 of 61 failed", 30.0))
    _record(database, failing)
    _record(database, ("m", 1, "LOADING", "", health("LOADING", "loading", "", 50.0)))
    _record(database, failing)
    assert kinds(database).count("model.failing") == 1


def test_a_version_that_was_loaded_is_no_recovery(database: Database) -> None:
    _record(database, ("m", 1, "LOADING", "", health("LOADING", "loading")))
    _record(database, ("m", 1, "READY", "", health("READY", "ok")))
    assert kinds(database) == ["load.changed", "load.changed"]


def test_of_a_gateway_that_judges_nothing_the_load_state_is_all(database: Database) -> None:
    _record(database, ("m", 1, "FAILED", "weights missing"))
    with database.reading() as session:
        (view,) = loads.states(session)
    assert (view.health.state, view.health.reason_code, view.health.reason) == (
        "FAILED", "load_error", "weights missing",
    )  # fmt: skip


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


def test_a_version_that_was_loaded_again_is_told_once(database: Database) -> None:
    ok = health("READY", "ok")
    first: loads.Row = ("m", 1, "READY", "", ok, 100.25)
    again: loads.Row = ("m", 1, "READY", "", ok, 170.5)
    for row in (("m", 1, "READY", "", ok, 0.0), first, first, again, again):
        _record(database, row)
    assert kinds(database) == ["load.changed", "load.reloaded"]


def test_a_restart_of_a_server_is_told_by_its_loads_alone(database: Database) -> None:
    _record(database, ("m", 1, "READY", "", health("READY", "ok"), 100.0))
    _record(database, ("m", 1, "LOADING", "", health("LOADING", "loading"), 0.0))
    _record(database, ("m", 1, "READY", "", health("READY", "ok"), 200.0))
    assert kinds(database) == ["load.changed"] * 3


def test_what_a_version_answers_is_told_also_of_one_that_says_when_it_was_loaded(
    database: Database,
) -> None:
    for one in (health("READY", "ok"), health("FAILING", "errors", "61 of 61 failed", 130.0)):
        _record(database, ("m", 1, "READY", "", one, 100.123456789))
    assert kinds(database) == ["load.changed", "model.failing"]

"""Events for whoever follows, the audit for whoever asks later."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from control.deployments import aliases
from control.errors import Invalid
from control.events import history
from control.events.history import AuditFilter
from control.sql.database import Actor, Database
from control.tables import Audit, Event
from support.control import ADA, rows
from support.control_deploy import deployed, repository, sealed

BOB = Actor("user:bob", "cli")


def _happen(database: Database, count: int, kind: str = "load.changed") -> None:
    with database.change(ADA) as tx:
        for number in range(count):
            tx.happened(kind, f"model:m{number}")


def _age(database: Database, days: int, up_to: int) -> None:
    with database.change(ADA) as tx:
        then = tx.now - timedelta(days=days)
        tx.session.execute(update(Event).where(Event.id <= up_to).values(at=then))


def test_events_are_replayed_from_where_a_stream_broke_off(database: Database) -> None:
    _happen(database, 5)
    with database.reading() as session:
        assert [event.id for event in history.events_after(session, 2, 2)] == [3, 4]
        assert history.events_after(session, 5) == []
        assert (history.first_event(session), history.last_event(session)) == (1, 5)
        with pytest.raises(Invalid, match="limit must be"):
            history.events_after(session, 0, 501)


def test_events_are_filtered_by_kind_and_subject(database: Database) -> None:
    repository(database)
    deployed(database, 1, sealed("digits", {1: "a"}))
    with database.reading() as session:
        kinds = history.events_after(session, 0, kinds=["push.*", "model.deployed"])
        assert [event.kind for event in kinds] == [
            "push.received",
            "push.accepted",
            "model.deployed",
            "push.deployed",
        ]
        one = history.events_after(session, 0, kinds=["model.*"], subjects=["model:digits"])
        assert [event.subject for event in one] == ["model:digits"]
        assert history.events_after(session, 0, kinds=["PUSH.*"]) == []
        assert history.events_after(session, 0, kinds=["push_*", "push.%"]) == []


def test_a_database_without_events_says_so(database: Database) -> None:
    with database.reading() as session:
        assert (history.first_event(session), history.last_event(session)) == (0, 0)


def test_the_audit_is_filtered_and_newest_first(database: Database) -> None:
    repository(database)
    deployed(database, 1, sealed("digits", {1: "a", 2: "b"}))
    for version in (1, 2):
        with database.change(BOB) as tx:
            aliases.set_alias(tx, "digits", "champion", version)
    with database.reading() as session:
        mine = history.audit_page(session, None, AuditFilter(actor="user:bob"))
        assert [row.action for row in mine.items] == ["alias.moved", "alias.created"]
        assert mine.items[0].before == {"version": 1, "revision": 1}
        page = history.audit_page(session, None, AuditFilter(action="alias."), 1)
        rest = history.audit_page(session, page.next, AuditFilter(action="alias."))
        assert [row.action for row in (*page.items, *rest.items)] == [
            "alias.moved",
            "alias.created",
        ]
        named = AuditFilter(subject="alias:digits@champion")
        assert len(history.audit_page(session, None, named).items) == 2
        moved = mine.items[0].at
        since, until = AuditFilter(since=moved), AuditFilter(until=moved)
        later = history.audit_page(session, None, since).items
        earlier = history.audit_page(session, None, until).items
    assert mine.items[0] in later
    assert mine.items[0] not in earlier
    assert len(later) + len(earlier) == len(rows(database, Audit))


def test_old_events_are_forgotten_but_never_the_audit(database: Database) -> None:
    repository(database)
    _happen(database, 9)
    _age(database, 31, up_to=6)
    with database.change(ADA) as tx:
        assert history.forget_events(tx, keep=2) == 6
        assert history.forget_events(tx, keep=2) == 0
    with database.reading() as session:
        assert history.first_event(session) == 7
    assert len(rows(database, Audit)) == 1


def test_the_last_events_stay_however_old_they_are(database: Database) -> None:
    _happen(database, 9)
    _age(database, 31, up_to=9)
    with database.change(ADA) as tx:
        assert history.forget_events(tx, keep=4) == 5
        assert history.forget_events(tx, keep=100) == 0


def test_young_events_stay_however_many_there_are(database: Database) -> None:
    _happen(database, 9)
    with database.change(ADA) as tx:
        assert history.forget_events(tx, keep=1) == 0

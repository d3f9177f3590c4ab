"""Browsers that logged in, and when that ends."""

from datetime import timedelta

import pytest
from sqlalchemy import update

from control.access.scopes import Principal, Role
from control.access.sessions import (
    MOST_PER_USER,
    close_session,
    open_session,
    principal_of_session,
    record_use,
)
from control.access.users import change_user, create_user
from control.clock import utc_now
from control.errors import Conflict, NotFound
from control.sql.database import Database
from control.tables import Session, User
from support.control import ADA, all_text, rows, told

HOURS = timedelta(hours=1)
GRACE = Principal("user:grace", Role.OPERATOR)


def log_in(database: Database) -> str:
    with database.change(ADA) as tx:
        create_user(tx, "grace", "operator")
        return open_session(tx, "grace", "192.0.2.9")


def who(database: Database, cookie: str, hours: float = 0) -> Principal | None:
    with database.reading() as session:
        return principal_of_session(session, cookie, utc_now() + hours * HOURS)


def test_whoever_has_the_cookie_is_the_user_until_logging_out(database: Database) -> None:
    cookie = log_in(database)
    assert len(cookie) == 43
    assert who(database, cookie) == GRACE
    with database.change(ADA) as tx:
        close_session(tx, cookie)
    assert who(database, cookie) is None
    with database.change(ADA) as tx:
        close_session(tx, cookie)
    assert told(database)[1:] == [
        ("session.opened", "user:grace"),
        ("session.closed", "user:grace"),
    ]


def test_the_cookie_is_kept_nowhere(database: Database) -> None:
    cookie = log_in(database)
    assert cookie not in all_text(database)
    assert cookie not in repr([vars(row) for row in rows(database, Session)])


@pytest.mark.parametrize("cookie", ["", "x", "x" * 43, "\x00" * 43, "\ud800", "x" * 10_000])
def test_another_cookie_is_nobodys(database: Database, cookie: str) -> None:
    log_in(database)
    assert who(database, cookie) is None


def test_it_ends_after_twelve_hours_of_rest(database: Database) -> None:
    cookie = log_in(database)
    assert who(database, cookie, hours=11.9) == GRACE
    assert who(database, cookie, hours=12.1) is None
    with database.change(ADA) as tx:
        tx.now += 11 * HOURS
        record_use(tx, [cookie])
    assert who(database, cookie, hours=12.1) == GRACE


def test_it_ends_after_a_week_however_often_it_is_seen(database: Database) -> None:
    cookie = log_in(database)
    for hours in range(10, 168, 10):
        with database.change(ADA) as tx:
            tx.now += hours * HOURS
            record_use(tx, [cookie])
    assert who(database, cookie, hours=167.9) == GRACE
    assert who(database, cookie, hours=168.1) is None


def test_one_that_is_over_does_not_come_back_by_being_seen(database: Database) -> None:
    cookie = log_in(database)
    with database.change(ADA) as tx:
        tx.now += 13 * HOURS
        record_use(tx, [cookie])
    assert who(database, cookie, hours=13) is None


def test_it_is_noted_as_seen_at_most_once_a_minute(database: Database) -> None:
    cookie = log_in(database)
    began = rows(database, Session)[0].seen_at
    noted = []
    for seconds in (1, 59, 60, 61):
        with database.change(ADA) as tx:
            tx.now = began + timedelta(seconds=seconds)
            record_use(tx, [cookie, "another"])
        noted.append((rows(database, Session)[0].seen_at - began).total_seconds())
    assert noted == [0, 0, 60, 60]


def test_one_user_has_so_many_browsers_and_the_one_seen_longest_ago_goes(
    database: Database,
) -> None:
    cookies = [log_in(database)]
    for minutes in range(1, MOST_PER_USER + 2):
        with database.change(ADA) as tx:
            tx.now += timedelta(minutes=minutes)
            if minutes == MOST_PER_USER:
                record_use(tx, [cookies[0]])
            cookies.append(open_session(tx, "grace", "192.0.2.9"))
    known = [who(database, cookie) is not None for cookie in cookies]
    assert known == [True, False, False] + [True] * (MOST_PER_USER - 1)
    assert len(rows(database, Session)) == MOST_PER_USER


def test_a_role_given_meanwhile_counts_at_once(database: Database) -> None:
    cookie = log_in(database)
    with database.change(ADA) as tx:
        change_user(tx, "grace", role="viewer")
    assert who(database, cookie) == Principal("user:grace", Role.VIEWER)


def test_a_browser_of_a_disabled_user_is_nobodys_even_while_its_row_is_there(
    database: Database,
) -> None:
    cookie = log_in(database)
    with database.change(ADA) as tx:
        tx.session.execute(update(User).values(disabled_at=tx.now))
    assert who(database, cookie) is None


def test_a_disabled_or_unknown_user_cannot_log_in(database: Database) -> None:
    log_in(database)
    with database.change(ADA) as tx:
        change_user(tx, "grace", disabled=True)
    with pytest.raises(Conflict, match="disabled"), database.change(ADA) as tx:
        open_session(tx, "grace", "")
    with pytest.raises(NotFound), database.change(ADA) as tx:
        open_session(tx, "nobody", "")

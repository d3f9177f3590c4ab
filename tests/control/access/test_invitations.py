"""The link that makes the first administrator, once."""

import threading
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest

from control.access.invitations import accept, first_link_code
from control.access.scopes import Role
from control.access.users import create_user, list_users
from control.errors import Conflict, ControlError, Invalid, NotFound
from control.sql.database import SYSTEM, Database
from control.tables import Invitation
from support.control import ADA, all_text, rows, told

PASSWORD = "correct horse battery"


def link(database: Database) -> str:
    with database.change(SYSTEM) as tx:
        code = first_link_code(tx)
    assert code is not None
    return code


def test_the_first_link_makes_an_administrator_once(database: Database) -> None:
    code = link(database)
    with database.change(ADA) as tx:
        assert accept(tx, code, "ada", PASSWORD).role == Role.ADMIN
    with pytest.raises(NotFound, match="was used"), database.change(ADA) as tx:
        accept(tx, code, "eve", PASSWORD)
    with database.change(SYSTEM) as tx:
        assert first_link_code(tx) is None
    assert told(database) == [
        ("invitation.created", "invitation:first"),
        ("user.created", "user:ada"),
        ("invitation.accepted", "user:ada"),
    ]


def test_the_code_is_kept_nowhere(database: Database) -> None:
    code = link(database)
    assert code not in all_text(database)
    assert code not in repr([vars(row) for row in rows(database, Invitation)])


def test_a_later_link_replaces_an_earlier_one(database: Database) -> None:
    earlier, later = link(database), link(database)
    with pytest.raises(NotFound, match="login-link"), database.change(ADA) as tx:
        accept(tx, earlier, "ada", PASSWORD)
    with database.change(ADA) as tx:
        accept(tx, later, "ada", PASSWORD)


def test_a_link_is_good_for_a_day(database: Database) -> None:
    code = link(database)
    with database.change(ADA) as tx:
        tx.now += timedelta(days=1, seconds=1)
        with pytest.raises(NotFound, match="more than a day old"):
            accept(tx, code, "ada", PASSWORD)


@pytest.mark.parametrize("code", ["", "\x00", "\ud800", "x" * 32, "x" * 10_000])
def test_another_code_makes_nobody(database: Database, code: str) -> None:
    link(database)
    with pytest.raises(NotFound), database.change(ADA) as tx:
        accept(tx, code, "ada", PASSWORD)


def test_a_refused_name_or_password_does_not_spend_the_link(database: Database) -> None:
    code = link(database)
    for name, password in ("Ada", PASSWORD), ("ada", "short"):
        with pytest.raises(Invalid), database.change(ADA) as tx:
            accept(tx, code, name, password)
    with database.change(ADA) as tx:
        accept(tx, code, "ada", PASSWORD)


def test_a_link_is_worth_nothing_once_there_is_an_admin(database: Database) -> None:
    code = link(database)
    with database.change(ADA) as tx:
        create_user(tx, "grace", "admin", PASSWORD)
    with pytest.raises(Conflict, match="there is an admin by now"), database.change(ADA) as tx:
        accept(tx, code, "eve", PASSWORD)


def test_a_viewer_alone_does_not_stop_the_link(database: Database) -> None:
    with database.change(ADA) as tx:
        create_user(tx, "grace", "viewer")
    link(database)


def test_servers_that_start_at_once_leave_one_link(database: Database) -> None:
    with ThreadPoolExecutor(3) as servers:
        codes = list(servers.map(link, [database] * 3))
    assert len(set(codes)) == 3
    assert len(rows(database, Invitation)) == 1


def test_of_two_who_follow_one_link_at_once_one_becomes_admin(database: Database) -> None:
    code = link(database)
    at_once = threading.Barrier(2, timeout=60)

    def follow(name: str) -> str:
        at_once.wait()
        try:
            with database.change(ADA) as tx:
                accept(tx, code, name, PASSWORD)
        except ControlError as error:
            return type(error).__name__
        return "admin"

    with ThreadPoolExecutor(2) as people:
        assert sorted(people.map(follow, ["ada", "eve"])) == ["NotFound", "admin"]
    with database.reading() as session:
        assert len(list_users(session)) == 1


def test_an_admin_without_a_password_does_not_end_the_links(database: Database) -> None:
    with database.change(ADA) as tx:
        create_user(tx, "robot", "admin")
    with database.change(ADA) as tx:
        code = first_link_code(tx)
        assert code is not None
    with database.change(ADA) as tx:
        accept(tx, code, "ada", PASSWORD)
    with database.change(ADA) as tx:
        assert first_link_code(tx) is None

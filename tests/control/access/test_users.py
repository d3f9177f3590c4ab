"""People: made, changed, disabled, recognised."""

import json
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from argon2 import PasswordHasher

from control.access.scopes import Principal, Role
from control.access.sessions import open_session, principal_of_session
from control.access.tokens import create_token, get_token, principal_of
from control.access.users import (
    change_user,
    check_password,
    create_user,
    get_user,
    has_admin,
    has_outdated_password,
    list_users,
    refresh_password,
)
from control.clock import utc_now
from control.errors import Conflict, ControlError, Invalid, NotFound
from control.sql.database import Database
from control.tables import Audit, User
from control.views import to_json
from support.control import ADA, all_text, desired_revision, rows, told

PASSWORD = "correct horse battery"


def make(database: Database, name: str, role: str = "admin", password: str | None = None) -> None:
    with database.change(ADA) as tx:
        create_user(tx, name, role, password)


def test_a_user_is_made_seen_and_recognised(database: Database) -> None:
    make(database, "grace", "operator", PASSWORD)
    with database.reading() as session:
        view = get_user(session, "grace")
        assert (view.role, view.has_password, view.revision) == (Role.OPERATOR, True, 1)
        assert list_users(session) == [view]
        assert check_password(session, "grace", PASSWORD) == Principal("user:grace", Role.OPERATOR)
    shown = json.loads(to_json(view))
    assert shown["disabled_at"] is None
    assert shown["created_at"].endswith("Z")


def test_users_are_listed_by_name_alike_on_every_database(database: Database) -> None:
    names = ["a-c", "a.b", "a_a", "aa", "b", "b2", "b10"]
    for name in reversed(names):
        make(database, name, "viewer")
    with database.reading() as session:
        assert [view.name for view in list_users(session)] == sorted(names)


def test_every_change_says_who_what_before_and_after(database: Database) -> None:
    make(database, "grace", "viewer")
    with database.change(ADA) as tx:
        change_user(tx, "grace", role="operator", password=PASSWORD)
    assert told(database) == [("user.created", "user:grace"), ("user.changed", "user:grace")]
    made, changed = rows(database, Audit)
    assert made.before is None
    assert changed.before == {"role": "viewer", "disabled": False, "password": "none"}
    assert changed.after == {"role": "operator", "disabled": False, "password": "changed"}
    assert (changed.actor, changed.via, changed.address) == ("user:ada", "api", "192.0.2.7")


def test_a_password_is_kept_as_argon2id_and_nowhere_else(database: Database) -> None:
    make(database, "grace", "viewer", PASSWORD)
    assert PASSWORD not in all_text(database)
    assert "argon2" not in all_text(database)
    assert rows(database, User)[0].password_hash.startswith("$argon2id$")


@pytest.mark.parametrize("name", ["", "Ada", "1st", "a" * 64, "a b", "a\n", "a\x00", "ä", "../a"])
def test_what_cannot_be_a_name_is_refused_and_never_found(database: Database, name: str) -> None:
    with pytest.raises(Invalid, match="no user name") as refused, database.change(ADA) as tx:
        create_user(tx, name, "viewer")
    assert refused.value.field == "name"
    with database.reading() as session:
        with pytest.raises(NotFound):
            get_user(session, name)
        assert check_password(session, name, PASSWORD) is None


def test_a_taken_name_an_unknown_role_and_a_bad_password_are_refused(database: Database) -> None:
    make(database, "grace")
    refusals: list[tuple[str, str, str, type[ControlError], str]] = [
        ("grace", "viewer", PASSWORD, Conflict, "a user 'grace' already"),
        ("alan", "root", PASSWORD, Invalid, "'root' is no role; give viewer, operator, admin"),
        ("alan", "viewer", "short", Invalid, "12 to 1024 characters, this one has 5"),
        ("alan", "viewer", "x" * 1025, Invalid, "this one has 1025"),
        ("alan-m-turing", "viewer", "Alan-M-Turing", Invalid, "differs from the user's name"),
    ]
    for name, role, password, error, said in refusals:
        with pytest.raises(error, match=said), database.change(ADA) as tx:
            create_user(tx, name, role, password)
    assert [user.name for user in rows(database, User)] == ["grace"]
    assert len(told(database)) == 1


def test_wrong_ones_are_not_recognised_whatever_is_wrong(database: Database) -> None:
    make(database, "root")
    make(database, "grace", "viewer", PASSWORD)
    with database.reading() as session:
        assert check_password(session, "grace", PASSWORD + "!") is None
        assert check_password(session, "grace", "\ud800") is None
        assert check_password(session, "root", PASSWORD) is None, "has none"
        assert check_password(session, "nobody", PASSWORD) is None
    with database.change(ADA) as tx:
        change_user(tx, "grace", disabled=True)
    with database.reading() as session:
        assert check_password(session, "grace", PASSWORD) is None


def test_an_outdated_hash_is_made_anew_at_the_next_login(database: Database) -> None:
    make(database, "grace", "viewer")
    old = PasswordHasher(time_cost=1, memory_cost=1024).hash(PASSWORD)
    with database.change(ADA) as tx:
        tx.session.query(User).update({User.password_hash: old})
    with database.reading() as session:
        assert has_outdated_password(session, "grace")
    with database.change(ADA) as tx:
        assert not refresh_password(tx, "grace", "not the password")
        assert refresh_password(tx, "grace", PASSWORD)
    with database.reading() as session:
        assert check_password(session, "grace", PASSWORD)
        assert not has_outdated_password(session, "grace")
        assert not has_outdated_password(session, "nobody")


def test_disabling_ends_sessions_and_tokens_at_once_and_for_ever(database: Database) -> None:
    make(database, "root")
    make(database, "grace", "operator")
    with database.change(ADA) as tx:
        cookie = open_session(tx, "grace", "192.0.2.9")
        token = create_token(tx, "grace", "ci", ["operate"])
    before = desired_revision(database)
    with database.change(ADA) as tx:
        change_user(tx, "grace", disabled=True)
    assert desired_revision(database) == before + 1, "gateways are told"
    for _ in range(2):
        with database.reading() as session:
            assert principal_of_session(session, cookie, utc_now()) is None
            assert principal_of(session, token.text, utc_now()) is None
            assert get_token(session, token.view.id).revoked_at is not None
        with database.change(ADA) as tx:
            change_user(tx, "grace", disabled=False)


def test_another_role_is_told_to_gateways_and_another_password_is_not(database: Database) -> None:
    make(database, "grace", "viewer")
    for change, more in ({"role": "operator"}, 1), ({"password": PASSWORD}, 0):
        before = desired_revision(database)
        with database.change(ADA) as tx:
            change_user(tx, "grace", **change)
        assert desired_revision(database) == before + more


def test_a_new_password_logs_out_everywhere_but_keeps_tokens(database: Database) -> None:
    make(database, "grace", "operator")
    with database.change(ADA) as tx:
        cookie = open_session(tx, "grace", "192.0.2.9")
        token = create_token(tx, "grace", "ci", ["operate"])
        change_user(tx, "grace", password=PASSWORD)
    with database.reading() as session:
        assert principal_of_session(session, cookie, utc_now()) is None
        assert principal_of(session, token.text, utc_now())


def test_a_change_that_changes_nothing_writes_nothing(database: Database) -> None:
    make(database, "grace", "operator")
    with database.change(ADA) as tx:
        view = change_user(tx, "grace", role="operator", disabled=False)
    assert view.revision == 1
    assert len(told(database)) == 1


def test_a_change_of_what_somebody_else_has_changed_is_refused(database: Database) -> None:
    make(database, "grace", "operator")
    with database.change(ADA) as tx:
        assert change_user(tx, "grace", role="viewer", expected=1).revision == 2
    with pytest.raises(Conflict, match="revision 2, you have 1"), database.change(ADA) as tx:
        change_user(tx, "grace", role="admin", expected=1)
    with pytest.raises(NotFound, match="no user 'nobody'"), database.change(ADA) as tx:
        change_user(tx, "nobody", role="admin")


@pytest.mark.parametrize("change", [{"disabled": True}, {"role": "operator"}])
def test_the_last_enabled_admin_stays_one(
    database: Database, change: dict[str, str | bool]
) -> None:
    make(database, "ada")
    with database.reading() as session:
        assert not has_admin(session), "nobody can log in"
    make(database, "grace", password=PASSWORD)
    with database.reading() as session:
        assert has_admin(session)
    with database.change(ADA) as tx:
        change_user(tx, "grace", disabled=True)
    with (
        pytest.raises(Conflict, match="'ada' is the last enabled admin"),
        database.change(ADA) as tx,
    ):
        change_user(tx, "ada", **change)  # type: ignore[arg-type]
    with database.reading() as session:
        assert get_user(session, "ada").revision == 1
    with database.change(ADA) as tx:
        change_user(tx, "grace", disabled=False)
        change_user(tx, "ada", **change)  # type: ignore[arg-type]


def test_two_admins_cannot_remove_each_other_at_the_same_time(database: Database) -> None:
    names = ["ada", "grace"]
    for name in names:
        make(database, name)

    def remove(name: str) -> bool:
        at_once.wait()
        try:
            with database.change(ADA) as tx:
                change_user(tx, name, disabled=True)
        except Conflict:
            return False
        return True

    for _ in range(5):
        at_once = threading.Barrier(2, timeout=60)
        with ThreadPoolExecutor(2) as both:
            assert sorted(both.map(remove, names)) == [False, True]
        for name in names:
            with database.change(ADA) as tx:
                change_user(tx, name, disabled=False)

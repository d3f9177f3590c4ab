"""API tokens: shown once, known by their digest."""

import re
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta

import pytest
from sqlalchemy import func, select, update

from control.access import tokens
from control.access.scopes import Principal, Role, Scope
from control.access.tokens import (
    NewToken,
    create_token,
    digest_of,
    get_token,
    list_tokens,
    principal_of,
    revoke_token,
    used,
)
from control.access.users import change_user, create_user
from control.clock import utc_now
from control.errors import Conflict, Invalid, NotFound
from control.sql.database import Database
from control.tables import Audit, Token, User
from support.control import (
    ADA,
    all_text,
    desired_revision,
    rows,
    told,
    wait_until_one_waits_for_a_lock,
)


def make(database: Database, *scopes: str, role: str = "operator", **terms: float) -> NewToken:
    with database.change(ADA) as tx:
        create_user(tx, "grace", role)
        return create_token(tx, "grace", "ci", scopes or ["operate"], **terms)  # type: ignore[arg-type]


def test_a_token_is_its_users_with_its_own_scopes(database: Database) -> None:
    token = make(database, "infer:digits*", "push:vision:main")
    assert re.fullmatch(r"myd_[0-9A-Za-z]{40}", token.text)
    scopes = (Scope("infer", "digits*"), Scope("push", "vision", "refs/heads/main"))
    with database.reading() as session:
        assert principal_of(session, token.text, utc_now()) == Principal(
            f"user:grace/token:{token.view.id}", Role.OPERATOR, scopes, token.view.id
        )
        assert list_tokens(session) == list_tokens(session, "grace") == [token.view]
        assert get_token(session, token.view.id) == token.view
    assert token.view.hint == token.text[:8]
    assert token.view.scopes == ("infer:digits*", "push:vision:refs/heads/main")


def test_the_text_is_nowhere_but_in_the_hand_of_its_user(database: Database) -> None:
    token = make(database)
    with database.change(ADA) as tx:
        revoke_token(tx, token.view.id)
    kept = repr([vars(row) for row in rows(database, Token)])
    for place in (kept, repr(token), str(token), repr(token.view), all_text(database)):
        assert token.text[8:] not in place
    assert digest_of(token.text) in kept
    assert digest_of(token.text) not in all_text(database)


def test_making_and_revoking_are_audited_and_told_to_gateways(database: Database) -> None:
    before = desired_revision(database)
    token = make(database, "read", rate_per_s=2.5)
    assert desired_revision(database) == before + 1
    with database.change(ADA) as tx:
        assert revoke_token(tx, token.view.id).revoked_at == tx.now
    assert desired_revision(database) == before + 2
    subject = f"token:{token.view.id}"
    assert told(database)[1:] == [("token.created", subject), ("token.revoked", subject)]
    made, revoked = rows(database, Audit)[1:]
    assert made.after["scopes"] == ["read"]
    assert (made.after["rate_per_s"], made.after["burst"]) == (2.5, 3)
    assert revoked.before == made.after
    assert revoked.after["revoked_at"]


def test_a_token_revoked_twice_is_revoked_once(database: Database) -> None:
    token = make(database)
    views = []
    for _ in range(2):
        with database.change(ADA) as tx:
            views.append(revoke_token(tx, token.view.id))
    assert views[0] == views[1]
    assert len(told(database)) == 3
    with database.reading() as session:
        assert principal_of(session, token.text, utc_now()) is None


@pytest.mark.parametrize("token_id", ["", "0" * 20, "a\x00", "ü", "%"])
def test_a_token_that_is_not_there_is_not_found(database: Database, token_id: str) -> None:
    with pytest.raises(NotFound, match="no token"), database.change(ADA) as tx:
        revoke_token(tx, token_id)


def test_a_token_ends_after_90_days_unless_said_otherwise(database: Database) -> None:
    token = make(database)
    ends_at = token.view.expires_at
    assert ends_at is not None
    assert ends_at - token.view.created_at == timedelta(days=90)
    with database.reading() as session:
        assert principal_of(session, token.text, ends_at - timedelta(seconds=1))
        assert principal_of(session, token.text, ends_at) is None


def test_only_an_admins_token_may_last_for_ever(database: Database) -> None:
    with pytest.raises(Invalid, match="only an admin's") as refused:
        make(database, expires_in_s=0)
    assert refused.value.field == "expires_in_s"
    assert make(database, role="admin", expires_in_s=0).view.expires_at is None


@pytest.mark.parametrize(
    ("scopes", "terms", "field"),
    [
        (["admin"], {}, "scopes"),
        ([], {}, "scopes"),
        (["everything"], {}, "scopes"),
        ([f"infer:m{number}" for number in range(101)], {}, "scopes"),
        (["read"], {"token_name": ""}, "name"),
        (["read"], {"token_name": " ci"}, "name"),
        (["read"], {"token_name": "a\x1b[2J"}, "name"),
        (["read"], {"token_name": "x" * 101}, "name"),
    ],
)
def test_what_a_token_cannot_be_is_refused(
    database: Database, scopes: list[str], terms: dict[str, str], field: str
) -> None:
    with database.change(ADA) as tx:
        create_user(tx, "grace", "operator")
    with pytest.raises(Invalid) as refused, database.change(ADA) as tx:
        create_token(tx, "grace", terms.get("token_name", "ci"), scopes)
    assert refused.value.field == field
    assert rows(database, Token) == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "myd_",
        "myd_" + "a" * 39,
        "myd_" + "a" * 41,
        "myd_" + "a" * 40,
        "myd_" + "a" * 40 + "\n",
        "MYD_" + "a" * 40,
        "myd_" + "\x00" * 40,
        "myd_" + "\ud800" * 40,
        "x" * 100_000,
    ],
)
def test_a_text_that_is_nobodys_token_is_nobodys(database: Database, text: str) -> None:
    make(database)
    with database.reading() as session:
        assert principal_of(session, text, utc_now()) is None


def test_a_token_can_do_no_more_than_its_users_role_of_today(database: Database) -> None:
    token = make(database, "operate")
    with database.change(ADA) as tx:
        change_user(tx, "grace", role="viewer")
    with database.reading() as session:
        found = principal_of(session, token.text, utc_now())
    assert found is not None
    assert found.role == Role.VIEWER


def test_a_disabled_or_unknown_user_gets_no_token(database: Database) -> None:
    make(database)
    with database.change(ADA) as tx:
        change_user(tx, "grace", disabled=True)
    with pytest.raises(Conflict, match="'grace' is disabled"), database.change(ADA) as tx:
        create_token(tx, "grace", "ci", ["read"])
    with pytest.raises(NotFound, match="no user 'alan'"), database.change(ADA) as tx:
        create_token(tx, "alan", "ci", ["read"])


def test_a_token_of_a_disabled_user_is_nobodys_even_unrevoked(database: Database) -> None:
    token = make(database)
    with database.change(ADA) as tx:
        tx.session.execute(update(User).values(disabled_at=tx.now))
    with database.reading() as session:
        assert principal_of(session, token.text, utc_now()) is None


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)  # SQLite has one writer
def test_a_token_made_while_its_user_is_being_disabled_is_revoked_too(database: Database) -> None:
    make(database)

    def disable() -> None:
        with database.change(ADA) as tx:
            change_user(tx, "grace", disabled=True)

    with ThreadPoolExecutor(1) as pool:
        with database.change(ADA) as tx:
            token = create_token(tx, "grace", "late", ["read"])
            disabling = pool.submit(disable)
            wait_until_one_waits_for_a_lock(database)
        disabling.result(60)
    with database.reading() as session:
        assert get_token(session, token.view.id).revoked_at is not None


def test_a_user_has_so_many_live_tokens_and_no_more(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MOST_PER_USER", 2)
    first = make(database)
    with database.change(ADA) as tx:
        create_token(tx, "grace", "ci", ["read"])
    with pytest.raises(Conflict, match="2 live tokens; revoke"), database.change(ADA) as tx:
        create_token(tx, "grace", "ci", ["read"])
    with database.change(ADA) as tx:
        revoke_token(tx, first.view.id)
        create_token(tx, "grace", "ci", ["read"])


def test_use_is_noted_at_most_once_a_minute(database: Database) -> None:
    token = make(database)
    began = token.view.created_at
    noted = []
    for seconds in (0, 59, 60, 61):
        with database.change(ADA) as tx:
            tx.now = began + timedelta(seconds=seconds)
            used(tx, [token.view.id, "nobody's"])
        noted.append(rows(database, Token)[0].last_used_at - began)
    assert [one.total_seconds() for one in noted] == [0, 0, 60, 60]
    assert len(told(database)) == 2, "using is no change"


def test_the_use_of_a_thousand_tokens_is_noted_in_one_go(database: Database) -> None:
    token = make(database)
    with database.change(ADA) as tx:
        owner = tx.session.get_one(Token, token.view.id).user_id
        for number in range(1000):
            tx.session.add(
                Token(
                    id=f"t{number}",
                    user_id=owner,
                    name="ci",
                    digest=f"{number}",
                    hint="myd_",
                    scopes=["read"],
                    created_at=tx.now,
                )
            )
    with database.change(ADA) as tx:
        used(tx, (f"t{number}" for number in range(1000)))
    with database.reading() as session:
        noted = select(func.count()).select_from(Token).where(Token.last_used_at.is_not(None))
        assert session.scalars(noted).one() == 1000

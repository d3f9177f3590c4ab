"""Who asks: tokens, passwords, the Unix socket; and what is refused before anything else."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from control.access.last_use import write_uses
from control.access.sessions import open_session
from control.access.tokens import list_tokens, revoke_token
from control.access.users import change_user
from control.authentication.credentials import COOKIE
from control.authentication.hosts import known_hosts
from control.sql.database import SYSTEM, Database
from support.admin import PASSWORD, Api, api, basic, facts


def test_over_the_unix_socket_the_servers_own_user_is_an_admin(running: Api) -> None:
    found = running.local("GET", "/me")
    assert found.status == 200
    assert found.json["role"] == "admin"
    assert found.json["principal"].startswith("local:")


def test_without_credentials_the_answer_says_how_to_give_them(running: Api) -> None:
    found = running.ask("GET", "/me")
    assert (found.status, found.code) == (401, "unauthenticated")
    assert found.headers["www-authenticate"].startswith("Bearer")
    assert "Authorization: Bearer" in found.message


def test_a_token_is_known_as_bearer_and_as_the_password_of_anybody(anywhere: Api) -> None:
    anywhere.user("ada", "operator")
    token = anywhere.token("ada", "operate")
    bearer = anywhere.ask("GET", "/me", token=token)
    by_basic = anywhere.ask("GET", "/me", headers={"Authorization": basic("x", token)})
    assert bearer.json == by_basic.json
    assert bearer.json["scopes"] == ["operate"]


def test_user_and_password_are_a_person_with_the_whole_role(running: Api) -> None:
    login = running.user("ada", "viewer")
    found = running.ask("GET", "/me", headers={"Authorization": login})
    assert found.json == {"principal": "user:ada", "role": "viewer", "scopes": None}


@pytest.mark.parametrize(
    "said",
    ["Bearer", "Bearer myd_wrong", "Basic !!!", "Basic YWRh", "Digest x", ""],
)
def test_credentials_that_are_none_are_refused_without_repeating_them(
    running: Api, said: str
) -> None:
    found = running.ask("GET", "/me", headers={"Authorization": said})
    assert found.status == 401
    assert "wrong" not in found.message.replace("user or password is wrong", "")


def test_a_wrong_header_is_not_made_good_by_the_socket(running: Api) -> None:
    found = running.local("GET", "/me", headers={"Authorization": "Bearer myd_no"})
    assert found.status == 401


def test_revoked_tokens_and_disabled_users_are_nobody(running: Api) -> None:
    login = running.user("ada", "admin")
    running.user("eve", "admin")
    token, other = running.token("ada", "read"), running.token("ada", "read")
    with running.database.reading() as session:
        ids = {one.id for one in list_tokens(session, "ada")}
    with running.database.change(SYSTEM) as tx:
        revoke_token(tx, min(ids))
    assert {running.ask("GET", "/me", token=one).status for one in (token, other)} == {200, 401}
    with running.database.change(SYSTEM) as tx:
        change_user(tx, "ada", disabled=True)
    assert running.ask("GET", "/me", token=other).status == 401
    assert running.ask("GET", "/me", headers={"Authorization": login}).status == 401


def test_a_colleague_behind_the_same_proxy_logs_in_while_somebody_guesses(
    timeless: Api,
) -> None:
    bob = timeless.user("bob", "viewer")
    timeless.user("ada", "viewer")
    guesses = [
        timeless.ask("GET", "/me", headers={"Authorization": basic("ada", "wrong")}).status
        for _ in range(8)
    ]
    assert guesses[-1] == 429
    assert timeless.ask("GET", "/me", headers={"Authorization": bob}).status == 200


@pytest.fixture
def timeless(sqlite: Database, tmp_path: Path) -> Iterator[Api]:
    """Its clock stands still, however slow this machine is."""
    with api(sqlite, tmp_path, monotonic=lambda: 7.0) as one:
        yield one


def test_after_a_few_wrong_passwords_the_next_try_has_to_wait(timeless: Api) -> None:
    running = timeless
    login = running.user("ada", "viewer")
    statuses = [
        running.ask("GET", "/me", headers={"Authorization": basic("ada", "wrong")}).status
        for _ in range(6)
    ]
    assert statuses[:5] == [401] * 5
    found = running.ask("GET", "/me", headers={"Authorization": login})
    assert (found.status, found.code) == (429, "too_many")
    assert found.headers["retry-after"] == "1"
    assert found.message == "too many wrong passwords; try again in 1 second"


def test_a_token_that_asks_too_often_is_told_when_to_come_back(running: Api) -> None:
    running.user("ada", "viewer")
    token = running.token("ada", "read", rate_per_s=0.01, burst=2)
    answers = [running.ask("GET", "/me", token=token) for _ in range(3)]
    assert [one.status for one in answers] == [200, 200, 429]
    wait = answers[2].headers["retry-after"]
    assert int(wait) > 10
    assert answers[2].message.endswith(f"; try again in {wait} seconds")


def test_a_cookie_reads_but_changes_only_with_origin_and_its_header(running: Api) -> None:
    running.user("ada", "admin")
    with running.database.change(SYSTEM) as tx:
        cookie = {"Cookie": f"{COOKIE}={open_session(tx, 'ada', '127.0.0.1')}"}
    assert running.ask("GET", "/me", headers=cookie).json["principal"] == "user:ada"
    new = {"name": "bob", "role": "viewer"}
    own = {"Origin": running.url, "X-Modelyard-CSRF": "1"}
    assert running.ask("POST", "/users", new, headers=cookie).code == "cross_site"
    without = running.ask("POST", "/users", new, headers={**cookie, "Origin": running.url})
    assert without.code == "cross_site"
    assert running.ask("POST", "/users", new, headers={**cookie, **own}).status == 201


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "https://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_page_of_another_site_changes_nothing_whatever_it_rides_on(
    running: Api, headers: dict[str, str]
) -> None:
    login = {"Authorization": running.user("ada", "admin")}
    found = running.ask("POST", "/users", {"name": "b", "role": "viewer"}, headers=login | headers)
    assert (found.status, found.code) == (403, "cross_site")
    assert running.ask("GET", "/users", headers=login | headers).status == 200


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:8003", "127.0.0.1.evil", "", "[::2]"]
)
def test_a_host_that_is_not_ours_is_turned_away(running: Api, host: str) -> None:
    found = running.ask("GET", "/me", headers={"Host": host})
    assert (found.status, found.code) == (421, "misdirected")


@pytest.mark.parametrize("host", ["localhost:1", "127.0.0.1", "[::1]:8003", "LOCALHOST"])
def test_names_of_this_machine_are_ours(running: Api, host: str) -> None:
    assert running.ask("GET", "//healthz", headers={"Host": host}).status == 200


def test_the_public_name_is_ours_too(sqlite: Database, tmp_path: Path) -> None:
    url = "https://models.example:8443"
    told = facts(tmp_path, public_url=url, hosts=known_hosts("0.0.0.0", url))
    with api(sqlite, tmp_path, facts=told) as running:
        here = {"Host": "models.example:8443"}
        assert running.ask("GET", "//healthz", headers=here).status == 200
        assert running.ask("GET", "//healthz", headers={"Host": "0.0.0.0"}).status == 421


def test_what_was_used_is_noted_in_one_batch(running: Api) -> None:
    running.user("ada", "viewer")
    token = running.token("ada", "read")
    running.ask("GET", "/me", token=token)
    write_uses(running.database, *running.services.uses.take())
    with running.database.reading() as session:
        (view,) = list_tokens(session, "ada")
    assert view.last_used_at is not None
    assert running.services.uses.take() == (set(), set())


def test_no_password_or_token_is_repeated_in_any_answer(running: Api) -> None:
    running.user("ada", "viewer")
    secret = "myd_" + "Z" * 40
    for headers in ({"Authorization": f"Bearer {secret}"}, {"Authorization": basic("ada", secret)}):
        found = running.ask("GET", "/me", headers=headers)
        assert secret not in found.body.decode() + str(found.headers)
    wrong = running.ask("GET", "/me", headers={"Authorization": basic("ada", PASSWORD + "x")})
    assert PASSWORD not in wrong.body.decode()


def test_who_shows_many_wrong_tokens_has_to_wait_and_who_has_a_good_one_does_not(
    timeless: Api,
) -> None:
    running = timeless
    running.user("ada", "viewer")
    good, other = running.token("ada", "read"), running.token("ada", "read")
    assert running.ask("GET", "/me", token=good).status == 200
    answers = [running.ask("GET", "/me", token=f"myd_{number}") for number in range(120)]
    assert {one.status for one in answers[:99]} == {401}
    assert {one.status for one in answers[99:]} == {429}
    assert "unknown tokens a second from this address" in answers[-1].message
    assert float(answers[-1].headers["retry-after"]) >= 1
    assert running.ask("GET", "/me", token=good).status == 200
    assert running.ask("GET", "/me", token=other).status == 429, "it has not been seen before"
    found = running.local("GET", "/me", headers={"Authorization": "Bearer myd_no"})
    assert found.status == 401, "nobody else comes over the socket"


def test_a_token_that_was_revoked_is_good_no_more(timeless: Api) -> None:
    running = timeless
    running.user("ada", "viewer")
    token = running.token("ada", "read")
    assert running.ask("GET", "/me", token=token).status == 200
    with running.database.reading() as session:
        (view,) = list_tokens(session, "ada")
    with running.database.change(SYSTEM) as tx:
        revoke_token(tx, view.id)
    answers = [running.ask("GET", "/me", token=token).status for _ in range(8)]
    assert set(answers) == {401}

"""Users, tokens, repositories, deployments, aliases over the API: what is asked, told and kept."""

import subprocess
from pathlib import Path

import pytest

from control.access.rate_limits import LoginThrottle
from control.access.sessions import open_session
from control.authentication.credentials import COOKIE, CSRF
from control.sql.database import SYSTEM, Database
from support.admin import PASSWORD, Api, api
from support.control import told
from support.deployed import deploy


def test_a_user_is_made_changed_and_disabled(anywhere: Api) -> None:
    made = anywhere.local("POST", "/users", {"name": "ada", "role": "viewer", "password": PASSWORD})
    assert made.status == 201
    assert made.headers["location"] == "/api/v1/users/ada"
    changed = anywhere.local("PATCH", "/users/ada", {"role": "operator"})
    assert changed.json["role"] == "operator"
    assert anywhere.local("PATCH", "/users/ada", {"disabled": True}).json["disabled_at"]
    assert [kind for kind, _ in told(anywhere.database)] == [
        "user.created",
        "user.changed",
        "user.changed",
    ]


def test_a_change_against_an_old_revision_is_refused(anywhere: Api) -> None:
    etag = anywhere.local("POST", "/users", {"name": "ada", "role": "viewer"}).headers["etag"]
    first = anywhere.local("PATCH", "/users/ada", {"role": "operator"}, {"If-Match": etag})
    assert first.status == 200
    second = anywhere.local("PATCH", "/users/ada", {"role": "admin"}, {"If-Match": etag})
    assert (second.status, second.code) == (412, "changed_meanwhile")
    current = first.headers["etag"]
    assert anywhere.local("PATCH", "/users/ada", {"role": "admin"}, {"If-Match": current}).json
    odd = anywhere.local("PATCH", "/users/ada", {"role": "admin"}, {"If-Match": "W/x"})
    assert (odd.status, odd.json["error"]["field"]) == (400, "If-Match")


def test_what_a_client_has_already_is_not_sent_again(running: Api) -> None:
    running.local("POST", "/users", {"name": "ada", "role": "viewer"})
    for path in ("/users/ada", "/users"):
        etag = running.local("GET", path).headers["etag"]
        again = running.local("GET", path, headers={"If-None-Match": etag})
        assert (again.status, again.body) == (304, b"")
    running.local("PATCH", "/users/ada", {"role": "operator"})
    assert running.local("GET", "/users", headers={"If-None-Match": etag}).status == 200


def test_lists_come_in_pages_that_link_to_the_next(anywhere: Api) -> None:
    for name in "abcde":
        anywhere.local("POST", "/users", {"name": name, "role": "viewer"})
    path, seen = "/users?limit=2", []
    while path:
        page = anywhere.local("GET", path)
        seen.append([one["name"] for one in page.json["items"]])
        link = page.headers.get("link", "")
        assert bool(link) == (page.json["next"] is not None)
        path = link.partition(">")[0].removeprefix("</api/v1") if link else ""
    assert seen == [["a", "b"], ["c", "d"], ["e"]]


@pytest.mark.parametrize(
    ("body", "field", "said"),
    [
        ({"name": "ada", "role": "viewer", "rolle": 1}, "rolle", "there is no field 'rolle'"),
        ({"name": "ada"}, "role", "missing"),
        ({"name": "ada", "role": "boss"}, "role", "viewer, operator, admin"),
        ({"name": 7, "role": "viewer"}, "name", "must be a string"),
        ({"name": "a\0b", "role": "viewer"}, "name", "NUL"),
        ({"name": "x" * 300, "role": "viewer"}, "name", "at most 255"),
        ([], "", "must be an object"),
    ],
)
def test_a_body_that_is_wrong_is_refused_by_the_name_of_the_field(
    running: Api, body: object, field: str, said: str
) -> None:
    found = running.local("POST", "/users", body)
    assert (found.status, found.json["error"]["field"]) == (400, field)
    assert said in found.message


def test_broken_json_is_pointed_at(running: Api) -> None:
    found = running.local("POST", "/users", b'{\n "name": ,}')
    assert (found.status, found.code) == (400, "malformed")
    assert "line 2, column 10" in found.message


def test_bodies_have_a_limit_and_a_type(running: Api) -> None:
    large = running.local("POST", "/users", b" " * (2**20 + 1))
    assert (large.status, large.code) == (413, "too_large")
    form = running.local("POST", "/users", b"{}", {"Content-Type": "text/plain"})
    assert (form.status, form.code) == (415, "wrong_type")
    useless = running.local("GET", "/users", b"{}")
    assert useless.status == 400


@pytest.mark.parametrize(
    "query", ["limit=0", "limit=501", "limit=x", "cursor=x", "lmit=1", "limit=1&limit=2"]
)
def test_a_query_that_is_wrong_is_refused(running: Api, query: str) -> None:
    found = running.local("GET", f"/users?{query}")
    assert found.status in (400, 422)
    assert found.json["error"]["field"] in ("limit", "cursor", "lmit")


def test_unknown_paths_and_verbs_are_told_in_the_envelope(running: Api) -> None:
    lost = running.local("GET", "/nowhere")
    assert (lost.status, lost.code) == (404, "not_found")
    wrong = running.local("DELETE", "/users")
    assert (wrong.status, wrong.code) == (405, "method_not_allowed")


def test_a_user_changes_the_own_password_and_nothing_else(running: Api) -> None:
    login = {"Authorization": running.user("ada", "viewer")}
    running.user("eve", "admin")
    new = "another good password"
    wrong = {"password": new, "current_password": "no"}
    assert running.ask("PATCH", "/users/ada", wrong, headers=login).status == 403
    promoted = {"role": "admin", "current_password": PASSWORD}
    assert running.ask("PATCH", "/users/ada", promoted, headers=login).status == 403
    right = {"password": new, "current_password": PASSWORD}
    assert running.ask("PATCH", "/users/ada", right, headers=login).status == 200
    assert running.ask("PATCH", "/users/eve", right, headers=login).status in (401, 403)


def test_a_browser_left_open_is_no_way_to_guess_the_password(
    sqlite: Database, tmp_path: Path
) -> None:
    with api(sqlite, tmp_path, monotonic=lambda: 1000.0) as running:
        running.user("ada", "viewer")
        with running.database.change(SYSTEM) as tx:
            cookie = open_session(tx, "ada", "127.0.0.1")
        browser = {"Cookie": f"{COOKIE}={cookie}", "Origin": running.url, CSRF: "1"}
        body = {"password": "another good password", "current_password": "a guess"}
        guesses = [
            running.ask("PATCH", "/users/ada", body, headers=browser)
            for _ in range(LoginThrottle.FREE + 1)
        ]

    assert [one.status for one in guesses] == [403] * LoginThrottle.FREE + [429]
    assert guesses[0].message == "current_password is not your password so far"
    assert guesses[-1].headers["retry-after"] == "1"


def test_a_token_is_shown_once_and_can_be_revoked_by_itself(running: Api) -> None:
    login = {"Authorization": running.user("ada", "viewer")}
    made = running.ask("POST", "/tokens", {"name": "ci", "scopes": ["read"]}, headers=login)
    text, token_id = made.json["text"], made.json["token"]["id"]
    assert made.status == 201
    listed = running.ask("GET", "/tokens", headers=login)
    assert [one["id"] for one in listed.json["items"]] == [token_id]
    assert text not in listed.body.decode()
    assert running.ask("DELETE", f"/tokens/{token_id}", token=text).status == 204
    assert running.ask("GET", "/me", token=text).status == 401


def test_nobody_revokes_the_token_of_somebody_else(running: Api) -> None:
    running.user("ada", "viewer")
    eve = {"Authorization": running.user("eve", "operator")}
    text = running.token("ada", "read")
    token_id = running.ask("GET", "/me", token=text).json["principal"].rpartition(":")[2]
    assert running.ask("DELETE", f"/tokens/{token_id}", headers=eve).status == 403
    assert running.ask("GET", "/tokens?user=ada", headers=eve).status == 403
    assert running.local("DELETE", f"/tokens/{token_id}").status == 204


def test_the_first_link_makes_an_admin_once(running: Api) -> None:
    url = running.local("POST", "/invitations").json["url"]
    assert url.startswith("http://127.0.0.1:8003/welcome#")
    body = {"code": url.partition("#")[2], "name": "ada", "password": PASSWORD}
    made = running.ask("POST", "/invitations/accept", body)
    assert (made.status, made.json["role"]) == (201, "admin")
    assert running.ask("POST", "/invitations/accept", body).status == 404
    assert running.local("POST", "/invitations").status == 409


def test_codes_cannot_be_guessed_quickly(running: Api) -> None:
    body = {"code": "x", "name": "ada", "password": PASSWORD}
    statuses = [running.ask("POST", "/invitations/accept", body).status for _ in range(12)]
    assert statuses[:10] == [404] * 10
    assert 429 in statuses[10:]


def test_a_repository_is_a_row_and_a_folder_until_it_is_deleted(
    running: Api, tmp_path: Path
) -> None:
    made = running.local("POST", "/repositories", {"name": "vision"})
    folder = tmp_path / "store" / "git" / "vision.git"
    assert made.status == 201
    assert folder.is_dir()
    assert running.local("POST", "/repositories", {"name": "vision"}).status == 409
    changes = {"settings": {"budgets": {"max_pack_bytes": 1000}}}
    changed = running.local("PATCH", "/repositories/vision", changes)
    assert changed.json["settings"]["budgets"]["max_pack_bytes"] == 1000
    assert "1000" in (folder / "config").read_text()
    odd = running.local("PATCH", "/repositories/vision", {"settings": {"colour": 1}})
    assert (odd.status, odd.code) == (422, "invalid")
    assert running.local("DELETE", "/repositories/vision").status == 204
    assert not folder.exists()
    assert running.local("GET", "/repositories/vision").status == 404


def test_what_lies_under_a_new_repositorys_name_is_not_taken_over(
    running: Api, tmp_path: Path
) -> None:
    left_over = tmp_path / "store" / "git" / "vision.git"
    left_over.mkdir(parents=True)
    (left_over / "secret").write_text("somebody else's")
    assert running.local("POST", "/repositories", {"name": "vision"}).status == 201
    assert not (left_over / "secret").exists()


def test_the_log_comes_in_pages_and_any_commit_can_be_deployed(
    running: Api, tmp_path: Path
) -> None:
    running.local("POST", "/repositories", {"name": "vision"})
    assert running.local("GET", "/repositories/vision/commits").json == {"items": [], "next": None}
    commits = commit(tmp_path / "store" / "git" / "vision.git", tmp_path / "work", 3)
    page = running.local("GET", "/repositories/vision/commits?limit=2").json
    rest = running.local("GET", f"/repositories/vision/commits?cursor={page['next']}").json
    assert [one["commit"] for one in page["items"] + rest["items"]] == commits
    assert rest["next"] is None
    first = commits[-1]
    made = running.local("POST", "/repositories/vision/deploy", {"commit": first[:10]})
    assert (made.status, made.json["new_commit"], made.json["kind"]) == (202, first, "deploy")
    assert made.json["subject"] == "commit 1"
    assert made.json["state"] == "accepted"
    assert running.bells
    by_ref = running.local("POST", "/repositories/vision/deploy", {"ref": "refs/heads/main"})
    assert by_ref.json["new_commit"] == commits[0]


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"commit": "f" * 40}, 404),
        ({"commit": "--upload-pack=x"}, 422),
        ({"ref": "refs/heads/../x"}, 422),
        ({"ref": "refs/heads/other"}, 404),
        ({}, 422),
        ({"commit": "a" * 10, "ref": "main"}, 422),
    ],
)
def test_a_commit_that_is_none_is_not_deployed(
    running: Api, tmp_path: Path, body: dict[str, str], status: int
) -> None:
    running.local("POST", "/repositories", {"name": "vision"})
    found = running.local("POST", "/repositories/vision/deploy", body)
    assert found.status == status
    assert not running.bells


def test_models_versions_and_pushes_are_shown_with_where_they_came_from(anywhere: Api) -> None:
    ids = deploy(anywhere.database)
    model = anywhere.local("GET", "/models/digits").json
    assert [one["version"] for one in model["versions"]] == [2, 1]
    version = anywhere.local("GET", "/models/digits/versions/1").json
    assert version["provenance"]["push"] == ids[0]
    assert version["states"][0]["state"] == "READY"
    pushes = anywhere.local("GET", "/pushes?repository=vision&state=served").json["items"]
    assert [one["id"] for one in pushes] == ids[::-1]
    assert anywhere.local("GET", f"/pushes/{ids[0]}").json["report"] == "all well"
    assert anywhere.local("GET", "/models/digits/versions/3").status == 404
    assert anywhere.local("GET", "/models/digits/versions/" + "9" * 30).status == 404


def test_a_push_is_shown_to_whoever_may_push_there(running: Api) -> None:
    (push, _) = deploy(running.database)
    running.user("ada", "operator")
    mine, other = running.token("ada", "push:vision:main"), running.token("ada", "push:other:*")
    assert running.ask("GET", f"/pushes/{push}", token=mine).status == 200
    assert running.ask("GET", f"/pushes/{push}", token=other).status == 403
    assert running.ask("GET", "/pushes?repository=vision", token=mine).status == 200
    assert running.ask("GET", "/pushes", token=mine).status == 403


def test_an_alias_is_made_moved_by_compare_and_set_and_deleted(anywhere: Api) -> None:
    deploy(anywhere.database)
    path = "/models/digits/aliases/champion"
    made = anywhere.local("PUT", path, {"version": 1}, {"If-None-Match": "*"})
    assert (made.status, made.json["version"]) == (200, 1)
    again = anywhere.local("PUT", path, {"version": 2}, {"If-None-Match": "*"})
    assert again.status == 412
    etag = made.headers["etag"]
    assert anywhere.local("PUT", path, {"version": 2}, {"If-Match": etag}).status == 200
    assert anywhere.local("PUT", path, {"version": 1}, {"If-Match": etag}).status == 412
    lost = anywhere.local("PUT", path, {"version": 9})
    assert (lost.status, lost.json["error"]["field"]) == (422, "version")
    assert anywhere.local("GET", "/aliases").json["items"][0]["version"] == 2
    assert anywhere.local("DELETE", path, headers={"If-Match": etag}).status == 412
    assert anywhere.local("DELETE", path).status == 204
    assert anywhere.local("GET", path).status == 404


def test_the_audit_says_who_did_what_from_where(anywhere: Api) -> None:
    login = {"Authorization": anywhere.user("ada", "admin")}
    anywhere.ask("POST", "/users", {"name": "bob", "role": "viewer"}, headers=login)
    anywhere.local("PATCH", "/users/bob", {"role": "operator"}, {"User-Agent": "modelyard-cli/1"})
    (changed,) = anywhere.local("GET", "/audit?action=user.changed").json["items"]
    assert (changed["via"], changed["address"]) == ("cli", "")
    assert changed["before"]["role"] == "viewer"
    (made,) = anywhere.local("GET", "/audit?actor=user:ada&subject=user:bob").json["items"]
    assert (made["action"], made["via"]) == ("user.created", "api")
    assert made["address"] == "127.0.0.1"
    late = anywhere.local("GET", "/audit?since=2100-01-01T00:00:00Z").json["items"]
    assert late == []
    for wrong in ("yesterday", "2026-11-21", "0001-01-01T00:00:00%2B23:00"):
        assert anywhere.local("GET", f"/audit?since={wrong}").status == 400


def test_without_the_database_every_answer_says_so_and_when_to_come_back(tmp_path: Path) -> None:
    gone = Database("postgresql://postgres:secret@127.0.0.1:1/none")
    with api(gone, tmp_path) as running:
        for path in ("/users", "//readyz", "/events"):
            found = running.local("GET", path)
            assert (found.status, found.code) == (503, "database_gone")
            assert found.headers["retry-after"]
            assert "secret" not in found.message
        assert running.local("GET", "//healthz").status == 200
        assert running.local("GET", "/me").status == 200
    gone.close()


def commit(bare: Path, work: Path, count: int) -> list[str]:
    """Push so many commits to main; their ids, newest first."""

    def git(*arguments: str) -> str:
        command = ["git", "-c", "user.name=Ada", "-c", "user.email=a@b", *arguments]
        return subprocess.run(command, cwd=work, capture_output=True, text=True, check=True).stdout

    work.mkdir()
    git("init", "--quiet", "-b", "main")
    for number in range(1, count + 1):
        git("commit", "--quiet", "--allow-empty", "-m", f"commit {number}")
    git(
        "-c",
        "core.hooksPath=/dev/null",
        "push",
        "--quiet",
        "--receive-pack=git -c core.hooksPath=/dev/null receive-pack",
        str(bare),
        "main",
    )
    return git("log", "--format=%H").split()

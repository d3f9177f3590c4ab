"""Forms: logging in and out, what is refused whoever asks, what each act does, what is kept."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from admin_ui.console import ACTS
from control.access.invitations import first_link_code
from control.sql.database import SYSTEM, Database
from support.admin import PASSWORD, Api
from support.console import Person, console_over, person
from support.deployed import deploy

NAMES = {
    "model": "digits", "alias": "champion", "repository": "vision", "user": "iris", "token": "t",
    "route": "shop", "rollout": "r", "experiment": "e",
}  # fmt: skip
OURS = [act for act in ACTS if act.path.startswith(("/models", "/repositories", "/access"))]


def filled(path: str) -> str:
    for name, value in NAMES.items():
        path = path.replace(f"{{{name}}}", value)
    return path


@pytest.fixture(scope="module")
def kept(
    tmp_path_factory: pytest.TempPathFactory, migrated_sqlite: Path, cheap_passwords: None
) -> Iterator[Api]:
    """A console for all tests that change nothing: with `digits`, its alias `champion`, and the
    administrator `iris`."""
    folder = tmp_path_factory.mktemp("kept")
    shutil.copy(migrated_sqlite, folder / "modelyard.db")
    database = Database(f"sqlite:///{folder}/modelyard.db")
    with console_over(database, folder) as one:
        deploy(database)
        one.user("iris", "admin")
        one.local("PUT", "/models/digits/aliases/champion", {"version": 1})
        yield one
    database.close()


@pytest.fixture(scope="module")
def ada(kept: Api) -> Person:
    return person(kept, "admin", "ada")


@pytest.fixture(scope="module")
def vera(kept: Api) -> Person:
    return person(kept, "viewer", "vera")


def changed_nothing(kept: Api, user: str) -> bool:
    """That the user has done nothing but log in."""
    audit = kept.local("GET", "/audit?limit=200").json["items"]
    return {row["action"] for row in audit if row["actor"] == f"user:{user}"} == {"session.opened"}


def test_a_login_opens_a_session_that_scripts_cannot_read(running: Api) -> None:
    running.user("ada", "viewer")
    found = Person(running).post("/login", {"name": "ada", "password": PASSWORD, "next": "/pushes"})
    assert (found.status, found.headers["location"]) == (303, "/pushes")
    said = found.headers["set-cookie"].lower()
    assert "httponly" in said
    assert "samesite=lax" in said
    assert "secure" not in said


@pytest.mark.parametrize("target", ["//evil.example", "https://evil.example", "/\\evil", "x"])
def test_a_login_leads_nowhere_else(running: Api, target: str) -> None:
    running.user("ada", "viewer")
    found = Person(running).post("/login", {"name": "ada", "password": PASSWORD, "next": target})
    assert found.headers["location"] == "/"


def test_a_wrong_password_keeps_the_name_and_says_so(running: Api) -> None:
    running.user("ada", "viewer")
    found = Person(running).post("/login", {"name": "ada", "password": "wrong wrong wrong"})
    assert found.status == 401
    assert 'value="ada"' in found.text
    assert "password is wrong" in found.text
    assert "wrong wrong" not in found.text


def test_guesses_are_slowed_down(running: Api) -> None:
    running.user("ada", "viewer")
    somebody = Person(running)
    for n in range(12):
        found = somebody.post("/login", {"name": "ada", "password": f"guess number {n}"})
    assert found.status == 429
    wait = found.headers["retry-after"]
    assert re.search(rf"too many wrong passwords; try again in {wait} seconds?\b", found.text)


def test_logging_out_ends_the_session(running: Api) -> None:
    ada = person(running, "viewer", "ada")
    before = ada.cookie
    assert ada.post("/logout", {}).headers["location"] == "/login"
    ada.cookie = before
    assert ada.get("/").status == 303


def test_somebody_elses_logout_form_does_nothing(running: Api) -> None:
    ada = person(running, "viewer", "ada")
    kept = ada.cookie
    ada.post("/logout", {"token": "0" * 64})
    ada.cookie = kept
    assert ada.get("/").status == 200


def test_the_one_time_link_makes_the_account_and_logs_in(running: Api) -> None:
    with running.database.change(SYSTEM) as tx:
        code = first_link_code(tx)
    somebody = Person(running)
    short = somebody.post("/welcome", {"code": code, "name": "root", "password": "short"})
    assert short.status == 422
    assert 'id="password-wrong"' in short.text
    assert f'value="{code}"' in short.text
    made = somebody.post("/welcome", {"code": code, "name": "root", "password": PASSWORD})
    assert (made.status, made.headers["location"]) == (303, "/")
    assert somebody.get("/access").status == 200
    again = Person(running).post("/welcome", {"code": code, "name": "eve", "password": PASSWORD})
    assert again.status == 404
    assert "this link was used" in again.text


@pytest.mark.parametrize("act", ACTS, ids=lambda act: act.path)
def test_another_sites_form_is_refused_everywhere(kept: Api, ada: Person, act: object) -> None:
    path = filled(act.path)  # type: ignore[attr-defined]
    evil = "http://evil.example"
    for headers in ({"Origin": evil}, {"Origin": ""}, {"Sec-Fetch-Site": "cross-site"}):
        assert ada.post(path, {"confirm": "x"}, **headers).status == 403, headers
    for token in ("", "0" * 64):
        kind = {"Content-Type": "application/octet-stream", "X-Form-Fields": f"token={token}"}
        file = kind if act.file else {}  # type: ignore[attr-defined]
        found = ada.post(path, {"token": token}, **file)
        assert found.status == 403
        assert "was not sent by this console" in found.text
    assert ada.post(path, {}, **{"Content-Type": "text/plain"}).status == 415
    assert ada.post(path, {}, Origin="null").status == 403
    assert changed_nothing(kept, "ada")


@pytest.mark.parametrize("act", OURS, ids=lambda act: act.path)
def test_a_viewer_changes_nothing(kept: Api, vera: Person, act: object) -> None:
    path = filled(act.path)  # type: ignore[attr-defined]
    if path == "/access/tokens":
        pytest.skip("everybody makes tokens of their own")
    form = {
        "confirm": "iris" if "users" in path else "champion" if "aliases" in path else "vision",
        "name": "x", "alias": "x", "version": "1", "revision": "1", "role": "admin",
        "commit": "a" * 40, "password": PASSWORD, "formats": "onnx",
            "window": "3600", "stretch": "3600",
        **dict.fromkeys(("max_pack_bytes", "max_file_bytes", "max_lfs_bytes", "max_files",
                         "max_models"), "9"),
    }  # fmt: skip
    found = vera.post(path, form)
    assert found.status in (403, 404), found.text[-800:]
    assert changed_nothing(kept, "vera")


def test_an_alias_is_made_moved_and_deleted(night: Api) -> None:
    otto = person(night, "operator", "otto")
    made = otto.post("/models/digits/aliases", {"alias": "champion", "version": "1"})
    assert (made.status, made.headers["location"]) == (303, "/models/digits")
    again = otto.post("/models/digits/aliases", {"alias": "champion", "version": "2"})
    assert again.status == 412
    assert 'value="champion"' in again.text
    assert 'data-at="/models/digits"' in again.text
    path = "/models/digits/aliases/champion"
    moved = otto.post(f"{path}/move", {"version": "2", "revision": "1"})
    assert moved.status == 303
    stale = otto.post(f"{path}/move", {"version": "1", "revision": "1"})
    assert stale.status == 412
    assert night.local("GET", path).json["version"] == 2
    wrong = otto.post(f"{path}/delete", {"confirm": "champ"})
    assert wrong.status == 422
    assert "type champion here" in wrong.text
    assert 'value="champ"' in wrong.text
    assert otto.post(f"{path}/delete", {"confirm": "champion"}).status == 303
    assert night.local("GET", path).status == 404
    audit = night.local("GET", "/audit?action=alias.").json["items"]
    assert {(row["actor"], row["via"]) for row in audit} == {("user:otto", "console")}


def test_a_token_is_shown_once(running: Api) -> None:
    vera = person(running, "viewer", "vera")
    found = vera.post("/access/tokens", {"name": "laptop", "scopes": "infer:*", "days": "7"})
    assert found.status == 200
    text = next(word for word in found.text.replace("<", " ").split(">") if "myd_" in word)
    secret = text.strip().split()[0]
    assert running.ask("GET", "/me", token=secret).json["scopes"] == ["infer:*"]
    assert 'id="live-state"' not in found.text  # it would come back without the secret
    assert secret not in vera.get("/access").text
    held = running.local("GET", "/tokens").json["items"][0]["id"]
    assert vera.post(f"/access/tokens/{held}/revoke", {"confirm": "lap"}).status == 422
    assert vera.post(f"/access/tokens/{held}/revoke", {"confirm": "laptop"}).status == 303
    assert running.ask("GET", "/me", token=secret).status == 401


def test_what_is_wrong_stands_beside_its_field_and_what_was_typed_is_kept(running: Api) -> None:
    ada = person(running, "admin", "ada")
    found = ada.post("/access/tokens", {"name": "my <laptop>", "scopes": "fly:*", "days": "7"})
    assert found.status == 422
    assert 'value="my &lt;laptop&gt;"' in found.text
    assert 'value="fly:*"' in found.text
    assert 'id="f-access-tokens-scopes-wrong"' in found.text
    assert 'aria-invalid="true"' in found.text
    bad = ada.post("/access/users", {"name": "Bad Name", "role": "viewer", "password": PASSWORD})
    assert 'id="f-access-users-name-wrong"' in bad.text
    assert PASSWORD not in bad.text


def test_a_repository_is_made_set_up_and_deleted(running: Api) -> None:
    ada = person(running, "admin", "ada")
    made = ada.post("/repositories", {"name": "vision", "deploy_ref": "refs/heads/main"})
    assert made.headers["location"] == "/repositories/vision"
    page = ada.get("/repositories/vision").text
    assert "git remote add modelyard http://127.0.0.1:8003/git/vision.git" in page
    form = {
        "revision": "1", "deploy_ref": "refs/heads/live", "signing": "warn", "trusted_keys": "",
        "formats": ["onnx", "config"], "max_pack_bytes": "1000", "max_file_bytes": "1000",
        "max_lfs_bytes": "1000", "max_files": "10", "max_models": "3",
    }  # fmt: skip
    assert ada.post("/repositories/vision/settings", form).status == 303
    settings = running.local("GET", "/repositories/vision").json["settings"]
    assert settings["deploy_ref"] == "refs/heads/live"
    assert settings["formats"] == ["onnx", "config"]
    assert settings["budgets"]["max_models"] == 3
    wrong = ada.post("/repositories/vision/settings", {**form, "revision": "2", "max_files": "x"})
    assert "no whole number" in wrong.text
    assert ada.post("/repositories/vision/delete", {"confirm": "vision"}).status == 303
    assert ada.get("/repositories/vision").status == 404


def test_a_user_changes_their_own_password_and_nothing_else(running: Api) -> None:
    vera = person(running, "viewer", "vera")
    path = "/access/users/vera/password"
    new = "another long password"
    assert vera.post(path, {"current": "wrong password", "password": new}).status == 403
    assert vera.post(path, {"current": PASSWORD, "password": new}).status == 303
    assert Person(running).log_in("vera", new).status == 303

"""The commands as a person or a script runs them, against a running API."""

import json
import os
import re
import socket
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from control.access.users import check_password
from control.backup.files import archive_to
from control.sql.database import SYSTEM, Database
from server.cli import main as cli
from support.admin import PASSWORD, Api
from support.deployed import deploy
from support.server import ROOT

Run = Any


@pytest.fixture
def run(
    running: Api,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Run:
    """Run a command in the folder of the state folder; (exit status, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MODELYARD_STATE_DIR", "state")
    monkeypatch.setenv("TZ", "UTC")

    def one(*words: str) -> tuple[int, str, str]:
        status = cli.main(words)
        said = capsys.readouterr()
        return status, said.out, said.err

    return one


def test_users_are_added_listed_changed_and_disabled(run: Run, tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(PASSWORD + "\n")
    added = run("user", "add", "ada", "--role", "operator", "--password-file", "secret")
    assert added == (0, "user ada created, role operator\n", "")
    assert run("user", "change", "ada", "--role", "admin")[0] == 0
    assert run("user", "add", "bob", "--role", "viewer")[0] == 0
    assert run("user", "disable", "bob")[0] == 0
    status, table, _ = run("user", "list")
    assert status == 0
    head, ada, bob = table.splitlines()
    assert head.split()[:3] == ["name", "role", "password"]
    assert re.fullmatch(r"ada +admin +yes +\d{4}-\d\d-\d\d \d\d:\d\d:\d\d \w+ +-", ada)
    assert bob.startswith("bob   viewer  no")
    listed = json.loads(run("user", "list", "--json")[1])
    assert [one["name"] for one in listed] == ["ada", "bob"]


def test_a_user_made_without_a_password_is_said_to_have_none_and_how_to_give_one(run: Run) -> None:
    status, out, err = run("user", "add", "bob", "--role", "viewer")
    assert (status, err) == (0, "")
    assert out.startswith("user bob created, role viewer, without a password: bob cannot log in")
    assert "`modelyard user change bob --password-file FILE`" in out
    assert "password" not in json.loads(run("user", "add", "eve", "--role", "viewer", "--json")[1])


@pytest.mark.parametrize("typed", ["", PASSWORD])
def test_at_a_terminal_a_new_users_password_is_asked_for(
    run: Run, tmp_path: Path, typed: str
) -> None:
    command = [sys.executable, "-m", "server.cli", "user", "add", "ada", "--role", "viewer"]
    on_a_terminal = [sys.executable, "-c", "import pty, sys; pty.spawn(sys.argv[1:])", *command]
    with subprocess.Popen(
        on_a_terminal,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(ROOT), "MODELYARD_STATE_DIR": str(tmp_path / "state")},
        cwd=tmp_path,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        screen = ""
        for prompt in ("Password for ada (Enter for none): ", *(["Again: "] if typed else [])):
            while not screen.endswith(prompt):
                piece = process.stdout.read1()
                assert piece, screen
                screen += piece.decode()
            process.stdin.write(f"{typed}\n".encode())
            process.stdin.flush()
        screen += process.stdout.read().decode()
    assert ("without a password" in screen) == (not typed)
    (ada,) = json.loads(run("user", "list", "--json")[1])
    assert ada["has_password"] == bool(typed)


def test_a_token_is_alone_on_stdout_and_works_over_the_url(
    run: Run, running: Api, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    run("user", "add", "ada", "--role", "viewer")
    status, out, err = run("token", "create", "ci", "--user", "ada", "--scope", "read")
    assert (status, len(out.split())) == (0, 1)
    assert "shown only once" in err
    monkeypatch.setenv("MODELYARD_TOKEN", out.strip())
    me = json.loads(run("whoami", "--url", running.url, "--json")[1])
    assert me["scopes"] == ["read"]
    monkeypatch.delenv("MODELYARD_TOKEN")
    (tmp_path / "token").write_text(out)
    assert run("whoami", "--url", running.url, "--token-file", "token")[0] == 0
    refused = run("user", "list", "--url", running.url, "--token-file", "token")
    assert refused[:2] == (1, "")
    assert refused[2].startswith(f"modelyard: {me['principal']} may not administer this server")
    assert refused[2].count("\n") == 1


def test_a_token_in_the_environment_does_not_hinder_the_local_socket(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MODELYARD_TOKEN", "myd_of_another_server")
    assert run("user", "list")[0] == 0


def test_tokens_are_listed_until_they_are_revoked(run: Run) -> None:
    run("user", "add", "ada", "--role", "admin")
    made = run("token", "create", "x", "--user", "ada", "--scope", "admin", "--expires", "never")
    assert "never expires" in made[2]
    run("token", "create", "y", "--user", "ada", "--scope", "read", "--expires", "12h", "--json")
    listed = json.loads(run("token", "list", "--user", "ada", "--json")[1])
    assert [one["name"] for one in listed] == ["y", "x"]
    assert run("token", "revoke", listed[0]["id"])[0] == 0
    assert len(json.loads(run("token", "list", "--json")[1])) == 1
    assert len(json.loads(run("token", "list", "--all", "--json")[1])) == 2


def test_a_repository_is_made_shown_changed_and_deleted(run: Run, tmp_path: Path) -> None:
    status, out, _ = run(
        "repo", "create", "vision", "--budget", "max_files=7", "--protect", "refs/heads/*"
    )
    assert (status, out) == (
        0,
        "repository vision created; push models to http://127.0.0.1:8003/git/vision.git\n",
    )
    assert run("push-url", "vision")[1] == "http://127.0.0.1:8003/git/vision.git\n"
    assert "settings.budgets.max_files" in run("repo", "show", "vision")[1]
    assert run("repo", "change", "vision", "--formats", "onnx,config")[0] == 0
    shown = json.loads(run("repo", "show", "vision", "--json")[1])
    assert shown["settings"]["formats"] == ["onnx", "config"]
    assert shown["settings"]["budgets"]["max_files"] == 7
    change = ("repo", "change", "vision")
    assert run(*change, "--add-format", "python", "--remove-format", "config")[0] == 0
    shown = json.loads(run("repo", "show", "vision", "--json")[1])
    assert shown["settings"]["formats"] == ["onnx", "python"]
    assert "'config'; it takes onnx, python" in run(*change, "--remove-format", "config")[2]
    assert "there is no format 'word'" in run(*change, "--add-format", "word")[2]
    assert "nothing to change" in run(*change)[2]
    assert "leave out" in run(*change, "--add-format", "text", "--formats", "onnx")[2]
    assert run("repo", "log", "vision") == (0, "", "(none)\n")
    assert run("repo", "delete", "vision")[0] == 1
    assert run("repo", "delete", "vision", "--yes")[0] == 0
    assert run("push-url", "vision")[0] == 1


def test_models_versions_pushes_and_aliases_are_shown_and_moved(run: Run, running: Api) -> None:
    ids = deploy(running.database)
    assert "2*, 1*" in run("model", "list")[1]
    assert "aliases" in run("model", "show", "digits")[1]
    version = json.loads(run("version", "show", "digits", "1", "--json")[1])
    assert version["provenance"]["push"] == ids[0]
    assert ids[1] in run("push", "list", "--repo", "vision")[1]
    assert "all well" in run("push", "show", ids[0])[1]
    assert run("alias", "set", "digits", "champion", "1", "--only-from", "0")[0] == 0
    assert run("alias", "set", "digits", "champion", "1", "--only-from", "0")[0] == 1
    assert run("alias", "set", "digits", "champion", "2", "--only-from", "1")[0] == 0
    refused = run("alias", "set", "digits", "champion", "1", "--only-from", "1")
    assert refused[2] == "modelyard: digits@champion is version 2, not 1; nothing changed\n"
    assert "champion" in run("alias", "list", "digits")[1]
    assert run("alias", "delete", "digits", "champion")[0] == 0
    assert json.loads(run("alias", "list", "--json")[1]) == []


def test_events_and_audit_are_listed(run: Run) -> None:
    run("user", "add", "ada", "--role", "viewer")
    (event,) = json.loads(run("event", "list", "--kind", "user.*", "--json")[1])
    assert event["subject"] == "user:ada"
    (row,) = json.loads(run("audit", "--subject", "user:ada", "--json")[1])
    assert (row["via"], row["actor"].partition(":")[0]) == ("cli", "local")


def test_the_first_admins_link_is_alone_on_stdout(run: Run, tmp_path: Path) -> None:
    status, out, _ = run("login-link")
    assert (status, out.partition("#")[0]) == (0, "http://127.0.0.1:8003/welcome")
    (tmp_path / "secret").write_text(PASSWORD + "\n")
    run("user", "add", "ada", "--role", "admin", "--password-file", "secret")
    assert run("login-link")[0] == 1


def test_a_backup_is_a_file_of_ones_own(run: Run, tmp_path: Path) -> None:
    assert run("backup", "all.tar") == (0, "all.tar: 5 bytes\n", "")
    path = tmp_path / "all.tar"
    assert path.read_bytes() == b"a tar"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_backup_restores_into_an_empty_folder(running: Api, run: Run, tmp_path: Path) -> None:
    running.user("ada", "admin")
    state, store = tmp_path / "old", tmp_path / "old" / "store"
    store.mkdir(parents=True)
    (state / "server.json").write_text('{"id": "x"}')
    (store / "store.json").write_text('{"id": "y"}')
    archive_to(running.database, state, store, tmp_path / "all.tar")
    assert run("restore", "all.tar", "--state-dir", "new") == (0, "restored into new\n", "")
    restored = Database(f"sqlite:///{tmp_path}/new/modelyard.db")
    with restored.change(SYSTEM) as tx:
        assert check_password(tx.session, "ada", PASSWORD) is not None
    restored.close()
    status, _, err = run("restore", "all.tar", "--state-dir", "new")
    assert status == 1
    assert err.count("\n") == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("user", "add", "ada"), "--role"),
        (("user", "lst"), "did you mean 'list'?"),
        (("token", "create", "x", "--scope", "read", "--expires", "9w"), "30m, 12h, 90d"),
        (("repo", "create", "x", "--budget", "files"), "max_files=100"),
        (("user", "list", "--token", "myd_x"), "there is no flag '--token'"),
    ],
)
def test_a_command_line_that_cannot_be_followed_is_told_in_one_line(
    run: Run, words: tuple[str, ...], said: str
) -> None:
    status, out, err = run(*words)
    assert (status, out) == (2, "")
    assert said in err
    assert err.count("\n") == 1


def test_what_the_server_refuses_is_one_line_and_status_one(run: Run) -> None:
    status, out, err = run("user", "change", "nobody", "--role", "admin")
    assert (status, out) == (1, "")
    assert err == "modelyard: there is no user 'nobody'\n"


def test_a_missing_server_is_told_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["user", "list"]) == 1
    assert capsys.readouterr().err == (
        "modelyard: no server answers at .modelyard/run/api.sock; "
        "start one with `modelyard serve`, or say where it is with --state-dir or --url\n"
    )
    assert cli.main(["user", "list", "--url", "http://127.0.0.1:1"]) == 1
    assert "no server answers at http://127.0.0.1:1" in capsys.readouterr().err
    assert not (tmp_path / ".modelyard").exists()


@pytest.mark.parametrize(
    "url", ["localhost", "http://localhost:port", "ftp://localhost", "http://"]
)
def test_a_url_that_is_none_is_told(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["whoami", "--url", url]) == 1
    assert capsys.readouterr().err == (
        f"modelyard: '{url}' is no URL to ask at; give --url http(s)://HOST:PORT\n"
    )


def test_who_gives_no_token_is_told_how_a_command_gives_one(run: Run, running: Api) -> None:
    err = run("whoami", "--url", running.url)[2]

    assert err.endswith("(--token-file FILE, or the variable MODELYARD_TOKEN)\n")


def test_what_is_no_control_api_is_told_from_one_that_refuses(run: Run) -> None:
    with somebody_else() as url:
        status, out, err = run("whoami", "--url", url)

    assert (status, out) == (1, "")
    assert "is something else than a control API; it is at the admin port, 8003" in err


def test_an_answer_that_breaks_off_is_not_called_a_missing_server(run: Run) -> None:
    with somebody_else(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{") as url:
        err = run("whoami", "--url", url)[2]

    assert err.startswith(f"modelyard: the answer of {url} broke off")


def test_an_empty_list_says_so_beside_the_output(run: Run) -> None:
    assert run("repo", "list") == (0, "", "(none)\n")
    assert run("repo", "list", "--json") == (0, "[]\n", "")
    assert "lists those in folders as well" in run("model", "list")[2]


def test_a_change_of_nothing_is_refused(run: Run) -> None:
    run("user", "add", "ada", "--role", "viewer")
    status, out, err = run("user", "change", "ada")

    assert (status, out) == (1, "")
    assert err.startswith("modelyard: give --role, --enable")


def test_a_folder_that_is_not_there_gets_no_backup(run: Run) -> None:
    status, out, err = run("backup", "nowhere/it.tar")

    assert (status, out) == (1, "")
    assert err == "modelyard: nowhere/it.tar cannot be written: No such file or directory\n"


def test_a_disk_without_room_is_not_called_a_missing_server(run: Run, tmp_path: Path) -> None:
    command = ["prlimit", "--fsize=2", sys.executable, "-m", "server.cli", "backup", "it.tar"]
    done = subprocess.run(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        timeout=180,
        check=False,
    )

    assert done.returncode == 1
    assert done.stderr == "modelyard: it.tar cannot be written: File too large\n"
    assert not [name for name in os.listdir(tmp_path) if "it.tar" in name]


def test_a_reader_that_has_enough_ends_a_command_quietly(run: Run, tmp_path: Path) -> None:
    command = f"{sys.executable} -m server.cli whoami | true; echo ${{PIPESTATUS[0]}}"
    done = subprocess.run(
        ["bash", "-c", command],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        text=True,
        capture_output=True,
        timeout=180,
        check=False,
    )

    assert (done.stdout, done.stderr) == ("0\n", "")


@contextmanager
def somebody_else(
    answer: bytes = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nhi",
) -> Iterator[str]:
    """A server that says the same to the first who asks."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def talk() -> None:
            client, _ = listening.accept()
            with client:
                client.recv(65536)
                client.sendall(answer)

        thread = threading.Thread(target=talk)
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        thread.join(60)


def test_what_strangers_wrote_cannot_play_with_the_terminal(run: Run, running: Api) -> None:
    with running.database.change(SYSTEM) as tx:
        tx.happened("test.\x1b[31mred", "x\ry")
    assert "\x1b" not in run("event", "list")[1]


def test_commands_start_without_a_database_or_a_web_framework() -> None:
    heavy = "{'sqlalchemy', 'starlette', 'numpy'}"
    code = f"import sys, server.cli.commands.table; print(*({heavy} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, check=True)
    assert done.stdout.split() == []

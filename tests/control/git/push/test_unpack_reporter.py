"""What git itself refuses before any hook: the pusher reads our code and remedy, a row keeps it."""

import gzip
import random
import struct
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path
from subprocess import CompletedProcess

import pytest

from control.deployments import pushes
from control.git.push.unpack_reporter import findings_of
from control.repository_settings import PushBudgets, RepositorySettings
from control.views import PushView
from repository.git.commands import MOST_BYTES, MOST_LINES
from repository.git.report import ReceiveReport
from support.git_http import blob, commit_of, git, work_tree
from support.git_server import Served, git_server

RECEIVE = "git-receive-pack"
NULL, ONE = "0" * 40, "1" * 40


@pytest.fixture(scope="module")
def server(migrated_sqlite: Path) -> Iterator[Served]:
    with git_server(migrated_sqlite) as running:
        running.user("ada", "operator")
        yield running


@pytest.fixture(scope="module")
def token(server: Served) -> str:
    return server.token("ada")


def rows(server: Served, name: str) -> list[PushView]:
    """Newest first."""
    with server.database.reading() as session:
        return list(pushes.list_pushes(session, repository=name, limit=200).items)


def told(pushed: CompletedProcess[str]) -> list[str]:
    lines = pushed.stderr.splitlines()
    return [line.removeprefix("remote: ").rstrip() for line in lines if line.startswith("remote: ")]


def push(server: Served, token: str, name: str, body: bytes, **headers: str) -> bytes:
    """git's answer to a request as no client makes it."""
    kind = {"Content-Type": f"application/x-{RECEIVE}-request", **headers}
    found = server.ask("POST", f"{name}.git/{RECEIVE}", token, body, kind)
    assert found.status == 200, found
    return found.body


def line(text: str) -> bytes:
    return f"{len(text) + 4:04x}{text}".encode()


def command(ref: str, features: str = "report-status side-band-64k") -> bytes:
    return line(f"{NULL} {ONE} {ref}\0 {features}\n")


def test_a_push_from_a_shallow_clone_is_told_to_fetch_the_rest(
    server: Served, token: str, tmp_path: Path
) -> None:
    source = work_tree(tmp_path / "source")
    git(source, "commit", "--allow-empty", "-q", "-m", "second")
    git(tmp_path, "clone", "-q", "--depth=1", f"file://{source}", "shallow")
    pushed = server.push(tmp_path / "shallow", server.create("shallow"), token)
    assert pushed.returncode != 0
    assert any(
        "refs/heads/main E416 the clone that was pushed from is shal" in one for one in told(pushed)
    )
    (row,) = rows(server, "shallow")
    assert (row.state, row.ref, row.report.splitlines()[0] in told(pushed)) == (
        "refused",
        "refs/heads/main",
        True,
    )


def test_an_object_that_gits_own_check_refuses_is_named(
    server: Served, token: str, tmp_path: Path
) -> None:
    work = work_tree(tmp_path / "work")
    commit = git(work, "cat-file", "commit", "HEAD").replace("author Ada", "author Ada <x")
    odd = git(
        work, "hash-object", "-t", "commit", "-w", "--literally", "--stdin", stdin=commit.encode()
    )
    pushed = server.push(work, server.create("odd"), token, f"{odd}:refs/heads/main")
    assert any(
        f"object/{odd[:12]} E414 is refused by git's own check" in one for one in told(pushed)
    )
    assert [row.state for row in rows(server, "odd")] == ["refused"]


def test_a_submodule_that_means_harm_is_refused(server: Served, token: str, tmp_path: Path) -> None:
    work = work_tree(tmp_path / "work")
    harmful = blob(work, b'[submodule "x"]\n\tpath = x\n\turl = --upload-pack=evil\n')
    commit = commit_of(work, ("100644", harmful, ".gitmodules"))
    pushed = server.push(work, server.create("modules"), token, f"{commit}:refs/heads/main")
    assert any(f"object/{harmful[:12]} E401 is a .gitmodules" in one for one in told(pushed))


def test_a_damaged_pack_is_told_and_kept(server: Served, token: str) -> None:
    name = server.create("damaged")
    answer = push(server, token, name, command("refs/heads/main") + b"0000PACKnothing of the kind")
    assert b"pack E415 git cannot unpack the push" in answer
    assert b"\x01000eunpack " not in answer.partition(b"E415")[0], "ours comes first"
    assert answer.endswith(b"0000")
    (row,) = rows(server, name)
    assert (row.state, row.ref, row.new_commit) == ("refused", "refs/heads/main", ONE)
    assert "'git fsck --full'" in row.report
    assert "nothing was changed in 'damaged'" in row.report


def test_a_push_without_the_objects_it_needs_is_told_and_kept(server: Served, token: str) -> None:
    nothing = b"PACK" + struct.pack(">II", 2, 0)
    body = command("refs/heads/main") + b"0000" + nothing + sha1(nothing).digest()
    answer = push(server, token, server.create("lacking"), body)
    assert b"refs/heads/main E415 the push lacks objects that it needs" in answer
    assert [row.state for row in rows(server, "lacking")] == ["refused"]


def test_a_client_without_a_side_band_gets_gits_answer_as_it_is(server: Served, token: str) -> None:
    name = server.create("plain")
    body = command("refs/heads/main", "report-status") + b"0000PACKnothing"
    answer = push(server, token, name, body)
    assert b"unpack " in answer
    assert b"E415" not in answer
    assert [row.state for row in rows(server, name)] == ["refused"]


def test_what_a_hook_refuses_has_the_hooks_words_alone(
    server: Served, tmp_path: Path, token: str
) -> None:
    work, name = work_tree(tmp_path / "work"), server.create("hooked")
    narrow = server.token("ada", f"push:{name}:refs/heads/mine")
    pushed = server.push(work, name, narrow)
    assert pushed.returncode != 0
    assert not [one for one in told(pushed) if " E4" in one]
    assert rows(server, name) == [], "the hook of this server keeps none"


def test_more_refs_than_git_should_remember_are_refused_by_stock_git(
    server: Served, token: str, tmp_path: Path
) -> None:
    work, name = work_tree(tmp_path / "work"), server.create("crowded")
    commit = git(work, "rev-parse", "HEAD")
    refs = (f"create refs/tags/t{number} {commit}\n" for number in range(MOST_LINES + 200))
    git(work, "update-ref", "--stdin", stdin="".join(refs).encode())
    pushed = server.push(work, name, token, "refs/tags/*:refs/tags/*")
    assert pushed.returncode != 0
    assert any("push E423 the push names more than 1000 refs" in one for one in told(pushed))
    assert "(too many refs)" in pushed.stderr
    assert git(server.bare(name).path, "for-each-ref") == ""
    kept = rows(server, name)
    assert len(kept) == 100
    assert {row.state for row in kept} == {"refused"}


def test_a_push_that_says_how_long_it_is_reads_why_it_is_refused(
    server: Served, token: str, tmp_path: Path
) -> None:
    """Whoever has set http.postBuffer high sends a length, and git shows no status's text."""
    noise = random.Random(7).randbytes(18 * 2**20)
    work = work_tree(tmp_path / "work", {"noise.bin": noise})
    git(work, "config", "http.postBuffer", str(2**26))
    name = server.create("lengthy", RepositorySettings(budgets=PushBudgets(max_pack_bytes=1000)))
    pushed = server.push(work, name, token)
    assert pushed.returncode != 0
    assert any("pack E413 the request has 188" in one for one in told(pushed)), pushed.stderr
    assert "(pack too large)" in pushed.stderr
    assert [row.state for row in rows(server, name)] == ["refused"]


@pytest.mark.parametrize("packed", [False, True], ids=["plain", "gzip"])
def test_commands_without_end_are_cut_off(server: Served, token: str, packed: bool) -> None:
    """Few lines, many bytes."""
    body = line(f"{NULL} {ONE} refs/heads/{'x' * 60_000}\0 report-status side-band-64k\n")
    body *= 2 * MOST_BYTES // len(body)
    sent = gzip.compress(body, mtime=0) if packed else body
    headers = {"Content-Encoding": "gzip"} if packed else {}
    answer = push(server, token, server.create(f"endless-{packed}".lower()), sent, **headers)
    assert b"E423 the push names more than" in answer


@pytest.mark.parametrize("option", ["option", ""], ids=["some", "empty"])
def test_options_without_end_are_cut_off(server: Served, token: str, option: str) -> None:
    first = command("refs/heads/main", "report-status side-band-64k push-options")
    body = first + b"0000" + line(option) * MOST_LINES
    answer = push(server, token, server.create(f"options-{len(option)}"), body)
    assert b"E423 the push names more than" in answer


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("fatal: pack exceeds maximum allowed size (1.00 MiB)", "E413"),
        ("fatal: Out of memory, malloc failed (tried to allocate 9 bytes)", "E413"),
        ("fatal: write error: No space left on device", "E417"),
        (f"error: object {ONE}: fullPathname: contains full pathnames", "E402"),
        (f"error: object {ONE}: treeNotSorted: not properly sorted", "E414"),
        ("fatal: early EOF", "E415"),
        ("", "E415"),
    ],
)
def test_gits_words_have_a_code_and_a_remedy(words: str, code: str) -> None:
    report = ReceiveReport("index-pack abnormal exit", {}, (words,) if words else ())
    (found,) = findings_of(report, 1000)
    assert (found.code, ";" in found.message) == (code, True)


def test_what_git_took_has_no_finding() -> None:
    assert (
        findings_of(ReceiveReport("ok", {"refs/heads/x": "pre-receive hook declined"}, ()), 1000)
        == []
    )
    assert findings_of(ReceiveReport("", {}, ("fatal: x",)), 1000) == []

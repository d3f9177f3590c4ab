"""The stock git client pushes to and fetches from a real server."""

import asyncio
import os
import random
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from repository.git import bare
from repository.git.contents import objects
from repository.git.hooks.hook import HookRequest
from repository.git.hooks.listener import Say
from repository.git.quarantine import quarantine_of
from repository.git.rules import TreeBudgets, check_refs, check_tree
from support.git_http import (
    CLIENT,
    DEADLINE_SECS,
    Answer,
    GitServer,
    accept,
    blob,
    client,
    commit,
    commit_of,
    git,
    serving,
    short_folder,
    work_tree,
)
from support.git_processes import eventually, processes_on


@pytest.fixture(scope="module")
def server() -> Iterator[GitServer]:
    with short_folder() as root, serving(root) as running:
        yield running


@pytest.fixture
def name(server: GitServer, request: pytest.FixtureRequest) -> str:
    made = f"r{abs(hash(request.node.name)):x}"
    server.create(made)
    server.requests.clear()
    server.failures.clear()
    return made


@pytest.fixture
def work(tmp_path: Path) -> Path:
    return work_tree(tmp_path / "work")


@contextmanager
def answering(server: GitServer, answer: Answer) -> Iterator[None]:
    """Pushes are answered in this way, within the block."""
    server.answer = answer
    try:
        yield
    finally:
        server.answer = accept


def random_bytes(count: int) -> bytes:
    return random.Random(7).randbytes(count)


def quarantines(server: GitServer, name: str) -> list[Path]:
    return list((server.bare(name).path / "objects").glob("tmp_objdir-*"))


@pytest.mark.parametrize("uv", [True, False], ids=["uvloop", "asyncio"])
def test_a_small_push_arrives_and_can_be_cloned(uv: bool, work: Path, tmp_path: Path):
    with short_folder() as root, serving(root, uv=uv) as server:
        server.create("zoo")
        git(work, "push", "--quiet", server.url("zoo"), "main")
        git(tmp_path, "clone", "--quiet", server.url("zoo"), "copy")
    assert (tmp_path / "copy/models/m/1/model.onnx").read_bytes() == b"weights"


def test_a_push_above_the_post_buffer_is_probed_and_then_chunked(
    server: GitServer, name: str, work: Path
):
    new = commit(work, {"models/m/2/model.onnx": random_bytes(3 * 2**20)})
    git(work, "push", "--quiet", server.url(name), "main")
    posts = [line for line in server.requests if line.startswith("POST")]
    assert "content-length=4" in posts[0]
    assert "transfer-encoding=chunked" in posts[1]
    assert server.call(objects.refs(server.bare(name).path)) == {"refs/heads/main": new}


def test_a_compressed_request_is_inflated(server: GitServer, name: str, work: Path, tmp_path: Path):
    git(work, "push", "--quiet", server.url(name), "main")
    for number in range(60):
        git(
            work, "branch", f"b{number}", git(work, "commit-tree", "HEAD^{tree}", "-m", f"{number}")
        )
    git(work, "push", "--quiet", server.url(name), "--all")
    git(tmp_path, "clone", "--quiet", "-c", "protocol.version=0", server.url(name), "copy")
    assert any("content-encoding=gzip" in line for line in server.requests)


def test_a_fetch_speaks_protocol_version_2(
    server: GitServer, name: str, work: Path, tmp_path: Path
):
    git(work, "push", "--quiet", server.url(name), "main")
    git(tmp_path, "clone", "--quiet", server.url(name), "copy")
    new = commit(work, {"README": b"two"})
    git(work, "push", "--quiet", server.url(name), "main")
    server.requests.clear()
    git(tmp_path / "copy", "-c", "protocol.version=2", "fetch", "--quiet")
    assert git(tmp_path / "copy", "rev-parse", "origin/main") == new
    assert all("git-protocol=version=2" in line for line in server.requests)
    assert [line for line in server.requests if "POST git-upload-pack" in line]


def test_a_clone_may_leave_large_files_out(
    server: GitServer, name: str, work: Path, tmp_path: Path
):
    large = random_bytes(100_000)
    commit(work, {"models/m/2/model.onnx": large})
    git(work, "push", "--quiet", server.url(name), "main")
    git(tmp_path, "clone", "--quiet", "--bare", "--filter=blob:limit=1k", server.url(name), "copy")
    missing = git(tmp_path / "copy", "rev-list", "--objects", "--missing=print", "main")
    assert missing.count("\n?") + missing.startswith("?") == 1


def test_a_rejection_is_shown_on_the_pushers_terminal_and_leaves_nothing(
    server: GitServer, name: str, work: Path
):
    async def refuse(request: HookRequest, say: Say) -> bool:
        say("models/m/config.pbtxt:3:7 E103 max_batch_size must be ≥ 0\x1b[31m\r, got -4")
        return False

    with answering(server, refuse):
        pushed = client(work, "push", server.url(name), "main")
    assert pushed.returncode == 1
    assert "remote: models/m/config.pbtxt:3:7 E103 max_batch_size must be ≥ 0 , got -4" in (
        pushed.stderr
    )
    assert "[remote rejected] main -> main (pre-receive hook declined)" in pushed.stderr
    assert server.call(objects.refs(server.bare(name).path)) == {}
    assert not quarantines(server, name)
    assert not list((server.bare(name).path / "objects/pack").iterdir())


def test_the_hook_hears_what_is_pushed_and_can_read_it_before_it_is_accepted(
    server: GitServer, name: str, work: Path
):
    heard: list[HookRequest] = []
    listed: list[str] = []
    path = server.bare(name).path

    async def look(request: HookRequest, say: Say) -> bool:
        heard.append(request)
        quarantine = quarantine_of(request.quarantine, path)
        entries = await objects.list_tree(path, request.updates[0].new, quarantine)
        listed.extend(entry.path for entry in entries)
        info = await objects.commit_info(path, request.updates[0].new, quarantine)
        say(f"{info.author.name}: {info.subject}")
        return True

    with answering(server, look):
        pushed = client(work, "push", "-o", "wait=1", server.url(name), "main")
    before, after = heard
    assert (before.hook, after.hook) == ("pre-receive", "post-receive")
    assert before.key == after.key == "push-1"
    assert before.options == ("wait=1",)
    assert before.updates == after.updates
    assert before.updates[0].ref == "refs/heads/main"
    assert before.quarantine
    assert not after.quarantine
    assert listed == 2 * ["models/m/1/model.onnx", "models/m/config.pbtxt"]
    assert pushed.stderr.count("remote: Ada: a change") == 2


def test_an_answer_is_shown_while_the_server_still_thinks(server: GitServer, name: str, work: Path):
    go_on = asyncio.Event()

    async def think(request: HookRequest, say: Say) -> bool:
        if request.hook == "pre-receive":
            say("checking")
            await go_on.wait()
        return True

    with answering(server, think):
        command = ["git", "push", "--progress", server.url(name), "main"]
        pushing = subprocess.Popen(command, cwd=work, env=CLIENT, stderr=subprocess.PIPE)
        assert pushing.stderr is not None
        lines = iter(pushing.stderr.readline, b"")
        assert any(b"remote: checking" in line for line in lines)
        assert pushing.poll() is None
        server.loop.call_soon_threadsafe(go_on.set)
        pushing.communicate(timeout=DEADLINE_SECS)
    assert pushing.returncode == 0


def test_an_answer_that_fails_refuses_the_push(
    server: GitServer, name: str, work: Path, caplog: pytest.LogCaptureFixture
):
    async def fail(request: HookRequest, say: Say) -> bool:
        raise ZeroDivisionError

    with answering(server, fail):
        pushed = client(work, "push", server.url(name), "main")
    assert pushed.returncode == 1
    assert "remote: the server failed to check this push" in pushed.stderr
    assert "ZeroDivisionError" in caplog.text


def test_a_pack_above_the_limit_is_refused_with_the_reason(server: GitServer, work: Path):
    server.create("small", push_bytes=2**20)
    commit(work, {"models/m/2/model.onnx": random_bytes(8 * 2**20)})
    pushed = client(work, "push", server.url("small"), "main")
    assert pushed.returncode == 1
    assert "remote: fatal: pack exceeds maximum allowed size" in pushed.stderr
    assert not quarantines(server, "small")
    assert server.call(objects.refs(server.bare("small").path)) == {}


def test_a_malformed_object_is_refused_by_fsck(server: GitServer, name: str, work: Path):
    tree = git(work, "rev-parse", "HEAD^{tree}")
    broken = f"tree {tree}\nauthor Ada <ada@example.com 1 +0000\ncommitter x\n\nodd\n".encode()
    bad = git(work, "hash-object", "-t", "commit", "-w", "--stdin", "--literally", stdin=broken)
    git(work, "update-ref", "refs/heads/bad", bad)
    pushed = client(work, "push", server.url(name), "bad")
    assert pushed.returncode == 1
    assert "fsck error" in pushed.stderr or "missingEmail" in pushed.stderr


@pytest.mark.parametrize(
    ("mode", "path", "code"),
    [
        ("120000", "link", "E400"),
        ("160000", "module", "E401"),
        ("100644", "a\\b", "E402"),
        ("100644", "bell\x07", "E404"),
        ("100644", "caf\udce9", "E404"),
        ("100644", "x" * 256, "E405"),
        ("100644", "dot.", "E407"),
    ],
)
def test_what_may_not_lie_in_a_tree_is_found_in_the_quarantine(
    mode: str, path: str, code: str, server: GitServer, name: str, work: Path
):
    repository = server.bare(name).path
    found: list[str] = []

    async def look(request: HookRequest, say: Say) -> bool:
        quarantine = quarantine_of(request.quarantine, repository)
        entries = await objects.list_tree(repository, request.updates[0].new, quarantine)
        findings = check_tree(entries, TreeBudgets())
        found.extend(finding.code for finding in findings)
        for finding in findings:
            say(str(finding))
        return not findings

    oid = git(work, "rev-parse", "HEAD") if mode == "160000" else blob(work, b"elsewhere")
    odd = commit_of(work, (mode, oid, path))
    with answering(server, look):
        pushed = client(work, "push", server.url(name), f"{odd}:refs/heads/odd")
    assert pushed.returncode == 1
    assert found == [code]
    assert f" {code} " in pushed.stderr


@pytest.mark.parametrize("path", [".git", ".GIT", "git~1", ".g\u200cit", ".."])
def test_a_git_folder_in_a_tree_does_not_even_pass_fsck(
    path: str, server: GitServer, name: str, work: Path
):
    odd = commit_of(work, ("100644", blob(work), path))
    pushed = client(work, "push", server.url(name), f"{odd}:refs/heads/odd")
    assert pushed.returncode == 1
    assert "fsck error" in pushed.stderr


def test_a_client_killed_in_the_middle_of_its_pack_leaves_nothing(
    server: GitServer, name: str, work: Path
):
    commit(work, {"models/m/2/model.onnx": random_bytes(24 * 2**20)})
    command = ["git", "push", "--quiet", server.url(name), "main"]
    pushing = subprocess.Popen(command, cwd=work, env=CLIENT, start_new_session=True)
    assert eventually(lambda: bool(quarantines(server, name)))
    os.killpg(pushing.pid, signal.SIGKILL)
    pushing.wait(DEADLINE_SECS)
    repository = server.bare(name).path
    assert eventually(lambda: not processes_on(repository))
    assert not quarantines(server, name)
    assert server.call(objects.refs(repository)) == {}


def test_a_client_killed_while_the_hook_thinks_ends_the_thinking(
    server: GitServer, name: str, work: Path
):
    events: list[str] = []

    async def think(request: HookRequest, say: Say) -> bool:
        events.append("asked")
        try:
            await asyncio.Event().wait()
        finally:
            events.append("over")
        return True

    with answering(server, think):
        command = ["git", "push", "--quiet", server.url(name), "main"]
        pushing = subprocess.Popen(command, cwd=work, env=CLIENT, start_new_session=True)
        assert eventually(lambda: "asked" in events)
        os.killpg(pushing.pid, signal.SIGKILL)
        pushing.wait(DEADLINE_SECS)
        assert eventually(lambda: "over" in events)
    assert eventually(lambda: not processes_on(server.bare(name).path))
    assert eventually(lambda: not quarantines(server, name))


def test_a_ref_that_looks_like_an_option_harms_nobody(server: GitServer, name: str, work: Path):
    repository = server.bare(name).path
    problems: list[str] = []

    async def look(request: HookRequest, say: Say) -> bool:
        problems.extend(finding.code for finding in check_refs(request.updates, ()))
        return not problems

    with answering(server, look):
        pushed = client(work, "push", server.url(name), "HEAD:refs/heads/--upload-pack=x")
    assert pushed.returncode == 1
    assert problems == ["E420"]
    assert server.call(objects.refs(repository)) == {}


def test_deployed_commits_are_neither_shown_nor_moved(server: GitServer, name: str, work: Path):
    git(work, "push", "--quiet", server.url(name), "main")
    server.call(bare.pin(server.bare(name), git(work, "rev-parse", "HEAD"), "push-1"))
    assert "internal" not in git(work, "ls-remote", server.url(name))
    pushed = client(work, "push", server.url(name), "main:refs/internal/deployed/mine")
    assert pushed.returncode == 1
    assert "deny updating a hidden ref" in pushed.stderr

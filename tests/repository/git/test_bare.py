"""Bare repositories: made whole, configured, listed, pinned, removed."""

import asyncio
import os
import subprocess
from pathlib import Path

import pytest

from repository.git import bare
from repository.git.bare import BareRepository, ReceiveLimits
from repository.git.contents import objects
from repository.git.errors import BadGitName, RepositoryExists, UnknownRepository
from support.git_http import CLIENT, client, git, work_tree

LIMITS = ReceiveLimits(push_bytes=12345)


def create(root: Path, name: str = "zoo") -> BareRepository:
    return asyncio.run(bare.create(root, name, LIMITS))


def filled(root: Path, tmp_path: Path) -> tuple[BareRepository, str]:
    """A repository with one commit, and its id."""
    made, work = create(root), work_tree(tmp_path / "work")
    # A push by path runs our hooks, which refuse what does not come through the server.
    git(made.path, "fetch", "--quiet", str(work), "main:refs/heads/main")
    return made, git(work, "rev-parse", "HEAD")


def test_a_new_repository_is_empty_and_its_head_is_main(tmp_path: Path):
    made = create(tmp_path)
    assert made.path == tmp_path / "git" / "zoo.git"
    assert git(made.path, "symbolic-ref", "HEAD") == "refs/heads/main"
    assert bare.names(tmp_path) == ("zoo",)
    assert [path.name for path in (tmp_path / "git").iterdir()] == ["zoo.git"]


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("receive.fsckObjects", "true"),
        ("transfer.fsckObjects", "true"),
        ("receive.maxInputSize", "12345"),
        ("receive.autogc", "false"),
        ("receive.advertisePushOptions", "true"),
        ("gc.auto", "0"),
        ("http.getanyfile", "false"),
        ("uploadpack.allowFilter", "true"),
        ("uploadpack.allowAnySHA1InWant", "false"),
        ("transfer.hideRefs", "refs/internal"),
        ("core.logAllRefUpdates", "true"),
        ("core.bare", "true"),
    ],
)
def test_git_reads_the_config_as_meant(key: str, value: str, tmp_path: Path):
    assert git(create(tmp_path).path, "config", "--get", key) == value


def test_a_folder_with_odd_characters_is_quoted(tmp_path: Path):
    root = tmp_path / 'a "b" \\c; #d'
    made = create(root)
    assert git(made.path, "config", "--get", "core.hooksPath") == str(root / "hooks")


def test_configuring_again_changes_nothing_and_repairs_what_was_changed(tmp_path: Path):
    made = create(tmp_path)
    before = (made.path / "config").stat().st_mtime_ns
    bare.configure(tmp_path, made, LIMITS)
    assert (made.path / "config").stat().st_mtime_ns == before
    git(made.path, "config", "receive.fsckObjects", "false")
    bare.configure(tmp_path, made, LIMITS)
    assert git(made.path, "config", "--get", "receive.fsckObjects") == "true"


def test_a_name_is_taken_once(tmp_path: Path):
    create(tmp_path)
    with pytest.raises(RepositoryExists, match="'zoo' already"):
        create(tmp_path)
    assert [path.name for path in (tmp_path / "git").iterdir()] == ["zoo.git"]


@pytest.mark.parametrize("name", ["../zoo", "zoo.git", "", "--bare", "Zoo"])
def test_a_name_that_is_more_than_a_name_is_refused(name: str, tmp_path: Path):
    with pytest.raises(BadGitName, match="cannot name a repository"):
        create(tmp_path, name)
    with pytest.raises(BadGitName):
        bare.remove(tmp_path, name)


def test_an_unknown_repository_is_told_of_those_there_are(tmp_path: Path):
    create(tmp_path)
    with pytest.raises(UnknownRepository, match="no repository 'farm'; there are: zoo"):
        bare.find(tmp_path, "farm")


def test_a_removed_repository_is_gone(tmp_path: Path):
    create(tmp_path)
    bare.remove(tmp_path, "zoo")
    assert not list((tmp_path / "git").iterdir())


def test_a_start_removes_what_a_crash_left(tmp_path: Path):
    made = create(tmp_path)
    leftovers = [
        made.path / "objects/tmp_objdir-incoming-x/pack",
        tmp_path / "git/.new-1",
        tmp_path / "git/.removed-1/objects",
    ]
    for folder in leftovers:
        folder.mkdir(parents=True)
    lock = made.path / "refs/heads/main.lock"
    lock.touch()
    assert bare.start(tmp_path, LIMITS) == (made,)
    assert not [path for path in (*leftovers, lock) if path.exists()]


def test_what_git_may_still_be_busy_with_is_left_alone(tmp_path: Path):
    made = create(tmp_path)
    old, young = (made.path / f"objects/tmp_objdir-incoming-{name}" for name in "xy")
    lock = made.path / "packed-refs.lock"
    for path in (old, young):
        path.mkdir()
    lock.touch()
    for path in (old, lock):
        os.utime(path, (1, 1))
    bare.sweep_all(tmp_path, 3600.0)
    assert [path.exists() for path in (old, lock, young)] == [False, False, True]


def test_a_pinned_commit_outlives_its_branch_and_gc(tmp_path: Path):
    made, oid = filled(tmp_path / "store", tmp_path)
    asyncio.run(bare.pin(made, oid, "push-7"))
    assert asyncio.run(bare.pins(made)) == {"push-7": oid}
    git(made.path, "update-ref", "-d", "refs/heads/main")
    git(made.path, "reflog", "expire", "--expire=now", "--all")
    asyncio.run(bare.collect(made))
    git(made.path, "prune", "--expire=now")
    assert asyncio.run(objects.resolve(made.path, oid)) == oid


def test_an_unpinned_commit_may_go(tmp_path: Path):
    made, oid = filled(tmp_path / "store", tmp_path)
    asyncio.run(bare.pin(made, oid, "push-7"))
    asyncio.run(bare.unpin(made, "push-7"))
    asyncio.run(bare.unpin(made, "push-7"))
    assert asyncio.run(bare.pins(made)) == {}


@pytest.mark.parametrize("key", ["", "../x", "a/b", "-d", "a.lock"])
def test_a_pin_has_a_plain_key(key: str, tmp_path: Path):
    with pytest.raises(BadGitName, match="key of a pin"):
        asyncio.run(bare.pin(create(tmp_path), "a" * 40, key))


def test_a_push_past_the_server_is_refused(tmp_path: Path):
    made, work = create(tmp_path / "store"), work_tree(tmp_path / "work")
    pushed = client(work, "push", str(made.path), "main")
    assert pushed.returncode == 1
    assert "takes pushes through its server only" in pushed.stderr


def test_the_hooks_are_read_only(tmp_path: Path):
    create(tmp_path)
    modes = {path.name: oct(path.stat().st_mode & 0o777) for path in (tmp_path / "hooks").iterdir()}
    assert modes == {"pre-receive": "0o500", "post-receive": "0o500", "hook.py": "0o400"}


def test_git_reads_no_settings_of_the_users(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / ".gitconfig").write_text("[init]\n\tdefaultBranch = wrong\n[core]\n\tbare = odd\n")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    monkeypatch.setenv("GIT_INDEX_FILE", "x")
    made, oid = filled(tmp_path / "store", tmp_path)
    assert asyncio.run(objects.resolve(made.path, "main")) == oid


def test_a_ref_that_was_moved_is_on_the_disk(tmp_path: Path) -> None:
    """git counts its flushes for whoever traces it; by itself it makes none for refs."""
    made, commit = filled(tmp_path / "store", tmp_path)
    trace = tmp_path / "trace"
    subprocess.run(
        ["git", "update-ref", "refs/heads/other", commit],
        cwd=made.path,
        env={**CLIENT, "GIT_TRACE2_PERF": str(trace)},
        check=True,
    )
    assert "fsync/hardware-flush:1" in trace.read_text()

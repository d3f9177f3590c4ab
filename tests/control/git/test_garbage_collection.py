"""When repositories are collected, and what a collection that dies half-way leaves."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from control.git.garbage_collection import REST_S, WORTH_PACKS, GitGarbageCollector, is_due
from repository.git import bare
from repository.git.bare import BareRepository, ReceiveLimits
from support.git_http import git, work_tree
from support.server import ROOT

MAIN = "refs/heads/main"


@pytest.fixture
def busy(tmp_path: Path) -> BareRepository:
    """A repository of many packs, one of them with a commit on main."""
    made = asyncio.run(bare.create(tmp_path / "store", "busy", ReceiveLimits()))
    work = work_tree(tmp_path / "work")
    git(made.path, "fetch", "-q", "--keep", str(work), f"main:{MAIN}")
    for kept in (made.path / "objects/pack").glob("*.keep"):
        kept.unlink()
    for number in range(WORTH_PACKS):
        oid = git(made.path, "hash-object", "-w", "--stdin", stdin=b"%d" % number)
        git(made.path, "pack-objects", "-q", "objects/pack/pack", stdin=f"{oid}\n".encode())
    git(made.path, "prune-packed")
    assert bare.packs(made) >= WORTH_PACKS
    return made


def collector(
    one: BareRepository, pushed: set[str] | None = None, now: float = 0.0
) -> GitGarbageCollector:
    return GitGarbageCollector(one.path.parents[1], lambda: pushed or set(), lambda: now)


def whole(one: BareRepository) -> bool:
    git(one.path, "fsck", "--full", "--strict")
    return len(git(one.path, "rev-parse", MAIN)) == 40


def test_many_packs_become_few(busy: BareRepository) -> None:
    asyncio.run(collector(busy).look())
    assert bare.packs(busy) <= 2, "one, and one of what nothing refers to"
    assert whole(busy)


def test_a_repository_that_is_pushed_to_is_left_for_later(busy: BareRepository) -> None:
    before = bare.packs(busy)
    asyncio.run(collector(busy, pushed={"busy"}).look())
    assert bare.packs(busy) == before


def test_one_that_another_server_takes_a_push_for_is_left_for_later(busy: BareRepository) -> None:
    before = bare.packs(busy)
    (busy.path / "objects/tmp_objdir-incoming-x").mkdir()
    asyncio.run(collector(busy).look())
    assert bare.packs(busy) == before


def test_a_collection_that_fails_is_not_tried_again_at_once(
    busy: BareRepository, caplog: pytest.LogCaptureFixture
) -> None:
    running = f"{os.getpid()} {os.uname().nodename}"  # as git writes it
    (busy.path / "gc.pid").write_text(running)
    now = [0.0]
    pump = GitGarbageCollector(busy.path.parents[1], set, lambda: now[0])
    asyncio.run(pump.look())
    assert "git gc of the repository 'busy' failed" in caplog.text
    (busy.path / "gc.pid").unlink()
    before = bare.packs(busy)
    asyncio.run(pump.look())
    assert bare.packs(busy) == before
    now[0] = REST_S
    asyncio.run(pump.look())
    assert bare.packs(busy) <= 2


@pytest.mark.parametrize(
    ("packs", "receiving", "now", "due"),
    [
        (WORTH_PACKS, False, 5.0, True),
        (WORTH_PACKS - 1, False, 5.0, False),
        (WORTH_PACKS, True, 5.0, False),
        (WORTH_PACKS, False, 4.9, False),
    ],
)
def test_what_is_due(packs: int, receiving: bool, now: float, due: bool) -> None:
    assert is_due(packs, receiving, now, 5.0) is due


def test_a_killed_collection_harms_nothing_and_is_cleared_away(busy: BareRepository) -> None:
    script = (
        "import asyncio, sys; from pathlib import Path; from repository.git import bare; "
        "asyncio.run(bare.collect(bare.find(Path(sys.argv[1]), 'busy')))"
    )
    command = [sys.executable, "-c", script, str(busy.path.parents[1])]
    collecting = subprocess.Popen(command, cwd=ROOT, start_new_session=True)
    until = time.monotonic() + 60
    while not (busy.path / "gc.pid").exists() and collecting.poll() is None:
        assert time.monotonic() < until
    collecting.kill()
    assert collecting.wait(60) in (-signal.SIGKILL, 0)
    assert whole(busy)
    (busy.path / "objects/pack/tmp_pack_x").write_bytes(b"half")
    bare.start(busy.path.parents[1], ReceiveLimits())
    assert not (busy.path / "gc.pid").exists()
    assert not (busy.path / "objects/pack/tmp_pack_x").exists()
    until = time.monotonic() + 60
    while bare.packs(busy) > 2:  # what was started before may end first
        asyncio.run(collector(busy).look())
        assert time.monotonic() < until
    assert whole(busy)

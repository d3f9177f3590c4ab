"""The deployer by itself, over rows and repositories that a crash left behind."""

import shutil
import subprocess
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from control.deployments.pushes import PushFacts, get_push, list_pushes, receive
from control.deployments.repositories import create_repository
from control.loops.deployer import GIVE_UP_S, LEASE, LEASE_S, Deployer, was_checked
from control.push_states import PushState
from control.repository_settings import RepositorySettings
from control.sql import leases
from control.sql.database import SYSTEM, Database
from repository.git import bare
from repository.git.rules import RefUpdate
from support.control import *  # noqa: F403

pytestmark = pytest.mark.anyio
BOOT, COMMIT = "boot", "c" * 40
NOTHING_EXAMINED: Any = None


def _received(database: Database, name: str, ago_s: float = 0.0) -> str:
    """A push that git was busy with when the process died."""
    with database.change(SYSTEM) as tx:
        tx.now -= timedelta(seconds=ago_s)
        update = RefUpdate("0" * 40, COMMIT, "refs/heads/main")
        return receive(tx, name, update, PushFacts("a change", "ada", "user:ada")).id


async def _settled(database: Database, store: Path, *pushes: str) -> list[tuple[str, str]]:
    deployer = Deployer(database, store, NOTHING_EXAMINED, BOOT, lambda: None, lambda: ())
    fence = leases.take(database, LEASE, BOOT, LEASE_S)
    assert fence is not None
    await deployer._settle_received(fence)
    with database.reading() as session:
        found = [get_push(session, one) for one in pushes]
    return [(one.state, one.reason) for one in found]


@pytest.fixture
async def store(sqlite: Database, tmp_path: Path) -> Path:
    """With a repository that is `fine` and one that is `broken`."""
    store = tmp_path / "store"
    bare.start(store, bare.ReceiveLimits())
    for name in ("broken", "fine"):
        with sqlite.change(SYSTEM) as tx:
            create_repository(tx, name, RepositorySettings())
        await bare.create(store, name, bare.ReceiveLimits())
    shutil.rmtree(bare.find(store, "broken").path / "refs")
    return store


async def test_a_repository_that_git_cannot_read_holds_up_no_other(
    sqlite: Database, store: Path
) -> None:
    broken, fine = _received(sqlite, "broken"), _received(sqlite, "fine")

    (waits, _), (settled, why) = await _settled(sqlite, store, broken, fine)

    assert waits == PushState.RECEIVED
    assert settled == PushState.ABANDONED
    assert why == "the push was cut off before git moved the ref; push again"


async def test_the_lease_is_left_alone_until_a_push_waits(sqlite: Database, store: Path) -> None:
    shutil.rmtree(store / "git" / "broken.git", ignore_errors=True)
    deployer = Deployer(sqlite, store, NOTHING_EXAMINED, BOOT, lambda: None, lambda: ())
    assert not await deployer._is_idle(), "a predecessor may have left something"
    await deployer._turn()
    assert await deployer._is_idle()
    _received(sqlite, "fine")
    assert not await deployer._is_idle()


async def test_a_push_to_a_repository_that_stays_broken_is_given_up_with_the_reason(
    sqlite: Database, store: Path
) -> None:
    broken = _received(sqlite, "broken", ago_s=GIVE_UP_S + 1)

    ((state, why),) = await _settled(sqlite, store, broken)

    assert state == PushState.ABANDONED
    assert why.startswith("the state of the push cannot be read: ")
    assert why.endswith("; push again")


async def test_a_commit_that_nobody_pushed_counts_as_checked_for_nobody(
    sqlite: Database, store: Path
) -> None:
    repository = bare.find(store, "fine")

    def git(*arguments: str) -> str:
        command = ["git", "-C", str(repository.path), "-c", "user.name=a", "-c", "user.email=a@b"]
        ran = subprocess.run([*command, *arguments], capture_output=True, text=True, check=True)
        return ran.stdout.strip()

    tree = git("hash-object", "-t", "tree", "-w", "/dev/null")
    git("update-ref", "refs/heads/main", git("commit-tree", tree, "-m", "by hand"))
    pushed = _received(sqlite, "broken")
    fence = leases.take(sqlite, LEASE, BOOT, LEASE_S)
    assert fence is not None
    deployer = Deployer(sqlite, store, NOTHING_EXAMINED, BOOT, lambda: None, lambda: ())
    await deployer._find_unknown(repository, fence)
    with sqlite.reading() as session:
        found = {one.id: was_checked(one) for one in list_pushes(session).items}
    assert found.pop(pushed)
    assert list(found.values()) == [False]

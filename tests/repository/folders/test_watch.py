"""A watched repository on a real disk: changes arrive once they have come to rest."""

import asyncio
import os
import shutil
import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from repository.files import plain_files
from repository.folders.watch import WatchedRepository, _is_shared
from repository.model import Snapshot
from support.repository import CONFIG, put_model, put_version

pytestmark = pytest.mark.anyio
DEADLINE_SECS = 60


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(params=[True, False], ids=["events", "polling"])
def use_events(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@asynccontextmanager
async def watched(
    root: Path, use_events: bool, allow_empty: bool = False
) -> AsyncIterator[AsyncGenerator[Snapshot, None]]:
    poll_secs = 60.0 if use_events else 0.2
    repository = WatchedRepository([root], poll_secs, use_events, allow_empty=allow_empty)
    await asyncio.to_thread(repository.snapshot)
    changes = repository.changes()
    try:
        async with asyncio.timeout(DEADLINE_SECS):
            yield changes
    finally:
        repository.close()
        await changes.aclose()


async def reaches(changes: AsyncGenerator[Snapshot, None], name: str, numbers: list[int]) -> bool:
    """Once a snapshot has these versions of the model, and no problem of it."""
    while True:
        snapshot = await anext(changes)
        if versions(snapshot, name) == numbers and name not in snapshot.problems:
            return True


def versions(snapshot: Snapshot, name: str = "m") -> list[int]:
    model = snapshot.models.get(name)
    return [version.number for version in model.versions] if model else []


def after_the_watch_began(act: Callable[[], object]) -> None:
    """Do something on the disk while the test waits in `changes()`."""
    asyncio.get_running_loop().call_later(0.05, act)


async def logged(caplog: pytest.LogCaptureFixture, text: str) -> None:
    for _ in range(DEADLINE_SECS * 100):
        if text in caplog.text:
            return
        await asyncio.sleep(0.01)
    pytest.fail(f"'{text}' was never logged")


async def test_a_new_version_and_its_removal_are_seen(tmp_path: Path, use_events: bool):
    folder = put_model(tmp_path, "m", 1)
    async with watched(tmp_path, use_events) as changes:
        after_the_watch_began(lambda: put_version(folder, 2))
        assert versions(await anext(changes)) == [1, 2]
        after_the_watch_began(lambda: shutil.rmtree(folder / "2"))
        assert versions(await anext(changes)) == [1]


async def test_a_new_model_and_its_removal_are_seen(tmp_path: Path, use_events: bool):
    async with watched(tmp_path, use_events) as changes:
        after_the_watch_began(lambda: put_model(tmp_path, "m", 1))
        assert versions(await anext(changes)) == [1]
        after_the_watch_began(lambda: shutil.rmtree(tmp_path / "m"))
        assert "m" not in (await anext(changes)).models


async def test_a_config_that_breaks_becomes_a_problem_and_heals(tmp_path: Path, use_events: bool):
    folder = put_model(tmp_path, "m", 1)
    async with watched(tmp_path, use_events) as changes:
        after_the_watch_began(lambda: (folder / "config.pbtxt").write_text("nam: 1"))
        assert "E102" in (await anext(changes)).problems["m"]
        after_the_watch_began(lambda: (folder / "config.pbtxt").write_text(CONFIG))
        assert versions(await anext(changes)) == [1]


async def test_a_model_being_copied_is_never_seen_halfway_and_holds_nobody_up(
    tmp_path: Path, use_events: bool
):
    copying, copied = threading.Event(), threading.Event()

    def copy_slowly() -> None:
        path = put_version(put_model(tmp_path, "slow"), 1) / "model.bin"
        with path.open("ab", buffering=0) as file:
            while not copying.wait(0.01):
                file.write(b"more")
            file.write(b"the end")
        copied.set()

    copier = threading.Thread(target=copy_slowly)
    async with watched(tmp_path, use_events) as changes:
        copier.start()
        after_the_watch_began(lambda: put_model(tmp_path, "quick", 1))
        first = await anext(changes)
        assert (versions(first, "quick"), versions(first, "slow")) == ([1], [])
        copying.set()
        await asyncio.to_thread(copied.wait)
        second = await anext(changes)
        assert versions(second, "slow") == [1]
        assert second.revision > first.revision
    copier.join()


async def test_changes_start_from_the_first_snapshot(tmp_path: Path):
    folder = put_model(tmp_path, "m", 1)
    repository = WatchedRepository([tmp_path])
    assert versions(repository.snapshot()) == [1]
    put_version(folder, 2)
    assert versions(repository.snapshot()) == [1, 2]
    changes = repository.changes()
    async with asyncio.timeout(DEADLINE_SECS):
        assert versions(await anext(changes)) == [1, 2]
    repository.close()
    assert [snapshot async for snapshot in changes] == []


async def test_close_ends_changes_promptly(tmp_path: Path):
    put_model(tmp_path, "m", 1)
    repository = WatchedRepository([tmp_path], poll_secs=3600)
    repository.snapshot()
    asyncio.get_running_loop().call_later(0.6, repository.close)
    async with asyncio.timeout(60):
        assert [snapshot async for snapshot in repository.changes()] == []


async def test_a_root_that_goes_away_leaves_its_models_as_they_were(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
):
    root = tmp_path / "root"
    folder = put_model(root, "m", 1)
    async with watched(root, use_events=False) as changes:
        after_the_watch_began(lambda: root.rename(tmp_path / "away"))
        gone = await anext(changes)
        assert "cannot be read" in gone.problems["m"]
        assert "keeps serving" in gone.problems["m"]
        assert caplog.text.count("keeps serving") == 1
        (tmp_path / "away").rename(root)
        put_version(folder, 2)
        assert await reaches(changes, "m", [1, 2])


@pytest.mark.parametrize("allowed", [False, True])
async def test_a_repository_that_turns_empty_at_once_is_not_believed(tmp_path: Path, allowed: bool):
    root = tmp_path / "root"
    for name in ("a", "b"):
        put_model(root, name, 1)
    async with watched(root, False, allow_empty=allowed) as changes:

        def unmount() -> None:
            root.rename(tmp_path / "away")
            root.mkdir()

        after_the_watch_began(unmount)
        gone = await anext(changes)
        assert gone.models == {}
        if allowed:
            assert gone.problems == {}
            return
        assert "has turned empty at once, with 2 models gone" in gone.problems["a"]
        assert gone.problems.keys() == {"a", "b"}
        put_model(root, "a", 1, 2)
        back = await anext(changes)
        while "b" in back.problems or versions(back, "a") != [1, 2]:
            back = await anext(changes)
        assert "b" not in back.models


async def test_an_only_model_that_is_unmounted_is_kept_and_one_that_is_removed_is_not(
    tmp_path: Path,
):
    root = tmp_path / "root"
    put_model(root, "m", 1)
    async with watched(root, False) as changes:
        after_the_watch_began(lambda: (root.rename(tmp_path / "away"), root.mkdir()))
        assert "turned empty" in (await anext(changes)).problems["m"]
        root.rmdir()
        (tmp_path / "away").rename(root)
        assert await reaches(changes, "m", [1])
        shutil.rmtree(root / "m")
        assert await reaches(changes, "m", [])


async def test_a_root_that_is_missing_spares_the_other_one(tmp_path: Path):
    put_model(tmp_path / "there", "m", 1)
    roots = [tmp_path / "missing", tmp_path / "there", tmp_path / "there" / "."]
    repository = WatchedRepository(roots, 0.2, False, allow_missing=True)
    assert versions(repository.snapshot()) == [1], "a folder that is named twice counts once"
    changes = repository.changes()
    async with asyncio.timeout(DEADLINE_SECS):
        put_model(tmp_path / "missing", "late", 1)
        assert await reaches(changes, "late", [1])
        put_version(tmp_path / "there" / "m", 2)
        (tmp_path / "missing").rename(tmp_path / "away")
        assert await reaches(changes, "m", [1, 2])
    repository.close()
    await changes.aclose()


async def test_without_events_it_polls_instead(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    root = tmp_path / "root"
    repository = WatchedRepository([root], poll_secs=3600)  # nothing there to listen to yet
    changes = repository.changes()
    waiting = asyncio.ensure_future(anext(changes))
    async with asyncio.timeout(DEADLINE_SECS):
        await logged(caplog, "polling every 1 s instead")
        put_model(root, "m", 1)
        assert versions(await waiting) == [1]
        repository.close()
        await changes.aclose()


async def test_at_rest_it_does_not_keep_looking(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    put_model(tmp_path, "m", 1)
    repository = WatchedRepository([tmp_path], poll_secs=3600)
    repository.snapshot()
    scans = 0
    observe = repository._observe

    def counted() -> Snapshot | None:
        nonlocal scans
        scans += 1
        return observe()

    monkeypatch.setattr(repository, "_observe", counted)
    asyncio.get_running_loop().call_later(1.5, repository.close)
    assert [snapshot async for snapshot in repository.changes()] == []
    assert scans <= 2


def test_a_link_to_a_shared_file_system_counts_as_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared = os.stat("/proc").st_dev
    monkeypatch.setattr(
        plain_files, "_kind_of", lambda device: "nfs4" if device == shared else "ext4"
    )
    (tmp_path / "model").mkdir()
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    assert not _is_shared([tmp_path])
    (tmp_path / "linked").symlink_to("/proc")
    assert _is_shared([tmp_path])

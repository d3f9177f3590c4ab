"""The folders and desired snapshots, as one repository."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from msgspec.structs import replace

from control.desired import NOTHING
from repository.folders.watch import WatchedRepository
from repository.model import Snapshot
from repository.snapshots.sealed_models import SnapshotStore
from server.desired.repository import DesiredRepository

pytestmark = pytest.mark.anyio


class _Broken(WatchedRepository):
    """Folders whose watching ends by an error of ours."""

    async def changes(self) -> AsyncGenerator[Snapshot, None]:
        await asyncio.sleep(0)
        raise ZeroDivisionError("a bug")
        yield self.snapshot()


def _repository(folders: WatchedRepository, store: Path) -> DesiredRepository:
    return DesiredRepository(folders, SnapshotStore(store), NOTHING, follow_folders=True)


async def test_folders_that_cannot_be_followed_any_more_are_told_of_at_once(tmp_path: Path) -> None:
    repository = _repository(_Broken([tmp_path]), tmp_path)
    repository.snapshot()

    async with asyncio.timeout(60):
        with pytest.raises(ZeroDivisionError):
            await anext(repository.changes())


async def test_a_look_that_was_overtaken_does_not_bring_back_what_was_before(
    tmp_path: Path,
) -> None:
    class Overtaken(WatchedRepository):
        """`snapshot` comes back after a later look has been followed."""

        def snapshot(self) -> Snapshot:
            earlier = super().snapshot()
            if repository._scan is not None:
                (tmp_path / "later" / "1").mkdir(parents=True)
                (tmp_path / "later" / "config.pbtxt").write_text('backend: "identity"')
                repository._remember(super().snapshot())
            return earlier

    repository = _repository(Overtaken([tmp_path], use_events=False), tmp_path / "store")
    repository.snapshot()
    repository.snapshot()
    following = repository.changes()
    repository.want(replace(NOTHING, revision=1))
    async with asyncio.timeout(60):
        seen = await anext(following)
    repository.close()
    async for _ in following:
        pass

    assert "later" in {*seen.models, *seen.problems}

"""What the control process tells is in force at once, and on the disk soon, off the loop."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from control.desired import NOTHING, Desired
from server.desired import disk
from server.desired.client import DesiredStateClient, Look
from server.settings.table import Settings

pytestmark = pytest.mark.anyio


def _client(settings: Settings, applied: list[Desired]) -> DesiredStateClient:
    return DesiredStateClient(
        settings, NOTHING, applied.append, lambda: Look((), True, set()), lambda _: iter(()), dict
    )


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    return Settings(state_dir=tmp_path / "state")


async def test_a_slow_disk_holds_up_neither_the_loop_nor_what_is_wanted(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, kept = threading.Event(), []

    def slow(state_dir: Path, desired: Desired) -> None:
        assert stuck.wait(60)
        kept.append(desired.revision)

    monkeypatch.setattr(disk, "keep", slow)
    applied: list[Desired] = []
    control = _client(settings, applied)
    control.start()
    for revision in (1, 2, 3, 4):
        control._told(replace(NOTHING, revision=revision))
        await asyncio.sleep(0)
    assert [one.revision for one in applied] == [1, 2, 3, 4]
    stuck.set()
    await control.stop()

    assert kept[-1] == 4, "the last one is on the disk when control has ended"
    assert len(kept) <= 2, "what came meanwhile is not written one by one"


async def test_what_was_told_is_read_again_by_the_next_gateway(settings: Settings) -> None:
    control = _client(settings, [])
    control.start()
    control._told(replace(NOTHING, revision=7, store="s"))
    await control.stop()

    assert disk.read(settings.state_dir).revision == 7


async def test_what_stops_standing_in_while_it_is_written_is_removed_again(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, stuck, write = threading.Event(), threading.Event(), disk.keep_in_force

    def slow(state_dir: Path, in_force: Desired | None) -> None:
        begun.set()
        assert stuck.wait(60)
        write(state_dir, in_force)

    monkeypatch.setattr(disk, "keep_in_force", slow)
    control = _client(settings, [])
    control.start()
    control.keep_in_force(replace(NOTHING, revision=1))
    assert await asyncio.to_thread(begun.wait, 60)
    control.keep_in_force(None)
    stuck.set()
    await control.stop()

    assert disk.read_in_force(settings.state_dir) is None


async def test_what_the_disk_did_not_take_is_written_once_it_does(
    settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.desired.client.RETRY_S", 0.01)
    tries, kept = [], asyncio.Event()
    loop, write = asyncio.get_running_loop(), disk.keep

    def full_at_first(state_dir: Path, desired: Desired) -> None:
        tries.append(desired.revision)
        if len(tries) < 3:
            raise OSError(28, "No space left on device")
        write(state_dir, desired)
        loop.call_soon_threadsafe(kept.set)

    monkeypatch.setattr(disk, "keep", full_at_first)
    control = _client(settings, [])
    control.start()
    control._told(replace(NOTHING, revision=5, store="s"))
    await asyncio.wait_for(kept.wait(), 60)
    await control.stop()

    assert disk.read(settings.state_dir).revision == 5

"""The desired state that a gateway keeps for the time without a control process."""

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from msgspec.structs import replace

from control.desired import NOTHING, DesiredModel, DesiredState, Pin, TokenGrant
from server.desired import disk

FULL = DesiredState(
    12,
    "store1",
    (DesiredModel("m", "s1", "vision", "c" * 40, (Pin(1, "s0", "alias champion"),)),),
    {"m": {"champion": 1}},
    (TokenGrant("d" * 64, "t1", "token:t1", "operator", ("infer:m", "read"), 1e9, 5.0, 10),),
)


def test_what_was_kept_is_read_again(tmp_path: Path) -> None:
    disk.keep(tmp_path, FULL)
    assert disk.read(tmp_path) == FULL


def test_without_anything_kept_nothing_is_wanted(tmp_path: Path) -> None:
    assert disk.read(tmp_path / "fresh") == NOTHING


def test_a_damaged_file_is_told_of_and_left_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    damaged = tmp_path / disk.NAME
    damaged.write_bytes(b"\x00 not msgpack")
    assert disk.read(tmp_path) == NOTHING
    assert "cannot be used" in caplog.text
    assert damaged.exists()


def test_only_this_user_may_read_it(tmp_path: Path) -> None:
    disk.keep(tmp_path, FULL)
    assert (tmp_path / disk.NAME).stat().st_mode & 0o077 == 0


def test_a_field_of_a_later_build_is_ignored(tmp_path: Path) -> None:
    import msgpack

    disk.keep(tmp_path, FULL)
    raw = msgpack.unpackb((tmp_path / disk.NAME).read_bytes())
    raw["novelty"] = raw["models"][0]["novelty"] = True
    (tmp_path / disk.NAME).write_bytes(msgpack.packb(raw))
    assert disk.read(tmp_path) == FULL


@asynccontextmanager
async def copying(state_dir: Path) -> AsyncIterator[disk.DiskCopy]:
    """A copy that is written meanwhile; at the end it has been given what came last."""
    copy = disk.DiskCopy(state_dir, NOTHING)
    running = asyncio.create_task(copy.run())
    yield copy
    copy.end()
    await asyncio.wait_for(running, 60)


@pytest.mark.anyio
async def test_a_slow_disk_does_not_hold_up_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, kept = threading.Event(), []

    def slow(state_dir: Path, desired: DesiredState) -> None:
        assert stuck.wait(60)
        kept.append(desired.revision)

    monkeypatch.setattr(disk, "keep", slow)
    async with copying(tmp_path) as copy:
        for revision in (1, 2, 3, 4):
            copy.put(replace(NOTHING, revision=revision), None)
            await asyncio.sleep(0)
        stuck.set()

    assert kept[-1] == 4, "the last one is on the disk at the end"
    assert len(kept) <= 2, "what came meanwhile is not written one by one"


@pytest.mark.anyio
async def test_what_was_told_is_read_again_by_the_next_gateway(tmp_path: Path) -> None:
    async with copying(tmp_path) as copy:
        copy.put(replace(NOTHING, revision=7, store="s"), None)

    assert disk.read(tmp_path).revision == 7


@pytest.mark.anyio
async def test_what_stops_standing_in_while_it_is_written_is_removed_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, stuck, write = threading.Event(), threading.Event(), disk.keep_in_force

    def slow(state_dir: Path, in_force: DesiredState | None) -> None:
        begun.set()
        assert stuck.wait(60)
        write(state_dir, in_force)

    monkeypatch.setattr(disk, "keep_in_force", slow)
    async with copying(tmp_path) as copy:
        copy.put(NOTHING, replace(NOTHING, revision=1))
        assert await asyncio.to_thread(begun.wait, 60)
        copy.put(NOTHING, None)
        stuck.set()

    assert disk.read_in_force(tmp_path) is None


@pytest.mark.anyio
async def test_what_the_disk_did_not_take_is_written_once_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("server.desired.disk.RETRY_S", 0.01)
    tries, kept = [], asyncio.Event()
    loop, write = asyncio.get_running_loop(), disk.keep

    def full_at_first(state_dir: Path, desired: DesiredState) -> None:
        tries.append(desired.revision)
        if len(tries) < 3:
            raise OSError(28, "No space left on device")
        write(state_dir, desired)
        loop.call_soon_threadsafe(kept.set)

    monkeypatch.setattr(disk, "keep", full_at_first)
    async with copying(tmp_path) as copy:
        copy.put(replace(NOTHING, revision=5, store="s"), None)
        await asyncio.wait_for(kept.wait(), 60)

    assert disk.read(tmp_path).revision == 5

"""The desired state that a gateway keeps for the time without a control process."""

from pathlib import Path

import pytest

from control.desired import NOTHING, Desired, DesiredModel, Grant, Pin
from server.desired import disk

FULL = Desired(
    12,
    "store1",
    (DesiredModel("m", "s1", "vision", "c" * 40, (Pin(1, "s0", "alias champion"),)),),
    {"m": {"champion": 1}},
    (Grant("d" * 64, "t1", "token:t1", "operator", ("infer:m", "read"), 1e9, 5.0, 10),),
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

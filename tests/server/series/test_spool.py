"""Windows that nobody has stored yet are found on the disk by the next gateway."""

import logging
from pathlib import Path

import pytest

from control.series.points import SeriesPoint, SeriesSubject, SeriesWindow, SubjectPoint
from server.series.spool import NAME, WindowSpool

ROW = SubjectPoint(SeriesSubject("version", "digits", 1), SeriesPoint(3, {"FAILED": 1}, (7, 3)))


def window(at: int, boot: str = "b") -> SeriesWindow:
    return SeriesWindow("server1", boot, at, (ROW,))


def keyed(*windows: SeriesWindow) -> dict[tuple[int, str], SeriesWindow]:
    return {(one.at, one.boot): one for one in windows}


def test_what_is_not_stored_is_read_by_the_next_one(tmp_path: Path) -> None:
    spool = WindowSpool(tmp_path)
    spool.sync(keyed(window(20), window(10)))
    spool.sync(keyed(window(20), window(30), window(30, "a")))
    found = WindowSpool(tmp_path).read(90)
    assert found == [window(20), window(30, "a"), window(30)]


def test_nothing_is_on_the_disk_once_all_is_stored(tmp_path: Path) -> None:
    spool = WindowSpool(tmp_path)
    spool.sync(keyed(window(10)))
    after = WindowSpool(tmp_path)
    assert after.read(90) == [window(10)]
    after.sync({})
    assert after.empty()
    assert list((tmp_path / NAME).iterdir()) == []


def test_of_many_the_newest_are_read_and_the_rest_removed(tmp_path: Path) -> None:
    WindowSpool(tmp_path).sync(keyed(*(window(at) for at in range(0, 50, 10))))
    spool = WindowSpool(tmp_path)
    found = spool.read(2)
    assert [one.at for one in found] == [30, 40]
    spool.sync(keyed(*found))
    assert [one.at for one in WindowSpool(tmp_path).read(90)] == [30, 40]


def test_a_damaged_file_costs_only_its_own_window(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    WindowSpool(tmp_path).sync(keyed(window(10), window(20)))
    (tmp_path / NAME / "10-b").write_bytes(b"half")
    assert WindowSpool(tmp_path).read(90) == [window(20)]
    assert "10-b" in caplog.text
    assert WindowSpool(tmp_path).read(90) == [window(20)]


def test_a_disk_that_takes_nothing_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / NAME).write_text("no folder")
    spool = WindowSpool(tmp_path)
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            spool.sync(keyed(window(10)))
    assert len(caplog.records) == 1

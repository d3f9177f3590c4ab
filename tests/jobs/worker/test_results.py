"""What a job's process wrote becomes a result whole, or is refused."""

import os
from pathlib import Path

import pytest

from jobs.worker.results import BadResult, keep_result

MOST = 1 << 20


@pytest.fixture
def output(tmp_path: Path) -> Path:
    folder = tmp_path / "attempt" / "output"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text("config")
    (folder / "1" / "model.onnx").write_text("model")
    return folder


def test_result_lies_where_it_is_published_from(output: Path, tmp_path: Path) -> None:
    target = tmp_path / "store" / "jobs" / "j" / "1" / "output"
    keep_result(output, target, MOST)
    assert (target / "config.pbtxt").read_text() == "config"
    assert (target / "1" / "model.onnx").read_text() == "model"
    assert [one.name for one in target.parent.iterdir()] == ["output"]


def test_what_a_killed_worker_had_copied_is_replaced(output: Path, tmp_path: Path) -> None:
    target = tmp_path / "store" / "output"
    (target.with_suffix(".copying") / "half").mkdir(parents=True)
    keep_result(output, target, MOST)
    assert sorted(one.name for one in target.iterdir()) == ["1", "config.pbtxt"]


@pytest.mark.parametrize("kind", ["a link", "a named pipe"])
def test_result_with_what_is_no_plain_file_is_refused(
    kind: str, output: Path, tmp_path: Path
) -> None:
    place = output / "1" / "odd"
    if kind == "a link":
        place.symlink_to("/etc/passwd")
    else:
        os.mkfifo(place)
    with pytest.raises(BadResult, match=f"'1/odd', {kind}"):
        keep_result(output, tmp_path / "store" / "output", MOST)
    assert not (tmp_path / "store").exists()


def test_result_with_holes_is_as_large_as_they_say(output: Path, tmp_path: Path) -> None:
    for name in ("a", "b"):
        with (output / "1" / name).open("wb") as file:
            file.truncate(MOST - 100)
    with pytest.raises(BadResult, match="more than its limit of 1 MiB"):
        keep_result(output, tmp_path / "store" / "output", MOST)


def test_result_with_folders_too_deep_is_refused(output: Path, tmp_path: Path) -> None:
    output.joinpath(*["deep"] * 40).mkdir(parents=True)
    with pytest.raises(BadResult, match="folders more than 32 deep"):
        keep_result(output, tmp_path / "store" / "output", MOST)


def test_result_without_permissions_is_kept_whole(output: Path, tmp_path: Path) -> None:
    (output / "1" / "inner").mkdir()
    (output / "1" / "inner" / "weights").write_text("w")
    for path in (output / "1" / "inner" / "weights", output / "1" / "inner", output / "1"):
        path.chmod(0)
    target = tmp_path / "store" / "output"
    keep_result(output, target, MOST)
    kept = target / "1" / "inner"
    assert (kept / "weights").read_text() == "w"
    assert kept.stat().st_mode & 0o777 == 0o700

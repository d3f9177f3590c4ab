"""Digests of what a job has read."""

import hashlib
from pathlib import Path

from control.jobs.messages import Task
from control.jobs.specs.optimise import OptimiseSpec
from jobs.tools.result.provenance import MOST_LISTED, digests


def task_of(folder: Path, count: int) -> Task:
    """A source of one file, and data of `count`."""
    for name in ("source", "data"):
        (folder / name).mkdir()
    (folder / "source" / "model.onnx").write_bytes(b"model")
    for number in range(count):
        (folder / "data" / f"{number:05}.txt").write_text(str(number))
    spec = OptimiseSpec(model="m", version=1)
    return Task("1", spec, str(folder / "source"), {}, str(folder / "data"), "", "", 1, 0)


def test_each_file_is_listed_with_its_digest(tmp_path: Path) -> None:
    found = digests(task_of(tmp_path, 2))
    assert list(found) == ["source/model.onnx", "data/00000.txt", "data/00001.txt"]
    assert found["source/model.onnx"] == hashlib.sha256(b"model").hexdigest()


def test_very_many_files_have_one_digest_that_each_of_them_changes(tmp_path: Path) -> None:
    task = task_of(tmp_path, MOST_LISTED + 1)
    name = f"data ({MOST_LISTED + 1} files)"
    before = digests(task)
    assert list(before) == ["source/model.onnx", name]
    (tmp_path / "data" / "00300.txt").write_text("changed")
    assert digests(task)[name] != before[name]

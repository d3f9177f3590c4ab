"""Folders that hang, as those of a network disk do, keep nobody else waiting."""

import threading
from pathlib import Path

import pytest

from repository.files.bounded_reads import BoundedReads
from repository.folders.read import FolderReader, FolderState
from repository.folders.snapshot import Scanner
from support.repository import put_model


def test_what_hangs_is_left_out_and_told_once_it_answers() -> None:
    answers, asked = {"b": threading.Event(), "d": threading.Event()}, []

    def read(key: str) -> str:
        asked.append(key)
        if key in answers:
            assert answers[key].wait(60)
        return key.upper()

    reads = BoundedReads(read)
    assert reads.all("abcde", 0.05) == {"a": "A", "c": "C", "e": "E"}
    assert reads.all("abcde", 0.05) == {"a": "A", "c": "C", "e": "E"}
    assert asked.count("b") == 1, "nobody is sent after it a second time"
    for event in answers.values():
        event.set()
    while (found := reads.all("abcde", 1)).keys() != set("abcde"):
        pass
    assert found["b"] == "B"


def test_so_many_threads_hang_and_no_more() -> None:
    free, began = threading.Event(), []

    def read(key: int) -> int:
        began.append(key)
        assert free.wait(60)
        return key

    reads = BoundedReads(read, most_waiting=3)
    for _ in range(5):
        assert reads.all(range(10), 0.01) == {}
    assert len(began) == 3
    free.set()
    while len(reads.all(range(10), 1)) < 10:
        pass


def test_an_error_is_raised_to_who_asks() -> None:
    with pytest.raises(ZeroDivisionError):
        BoundedReads(lambda key: 1 // key).all([1, 0, 2], 1)


def test_a_model_folder_that_hangs_stays_as_it_was_and_delays_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system that hangs cannot be had here without one of its own: the walk stands in."""
    for name in ("a", "b", "c"):
        put_model(tmp_path, name, 1)
    scanner = Scanner([tmp_path])
    before = scanner.build(scanner.look())
    put_model(tmp_path, "new", 1)
    hanging, free, model = {"b", "new"}, threading.Event(), FolderReader.model

    def slow(
        self: FolderReader, root: Path, folder: Path, name: str, inside: str
    ) -> FolderState | None:
        if name in hanging:
            assert free.wait(60)
        return model(self, root, folder, name, inside)

    monkeypatch.setattr(FolderReader, "model", slow)
    for name in ("a", "b", "c"):
        put_model(tmp_path, name, 2)
    seen = scanner.build(scanner.look_at_roots(0.05)[0])
    assert [len(seen.models[name].versions) for name in "abc"] == [2, 1, 2]
    assert seen.models["b"] is before.models["b"]
    assert "takes longer than 0.05 s to read" in seen.problems["new"]
    free.set()
    hanging.clear()
    while len(scanner.build(scanner.look_at_roots(1)[0]).models["b"].versions) < 2:
        pass

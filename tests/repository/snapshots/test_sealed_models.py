"""What is remembered of the store's snapshots, and for how long."""

import shutil
from pathlib import Path

import pytest

from repository.folders.snapshot import ModelFolder
from repository.snapshots.sealed_models import SnapshotStore


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name in "abc":
        home = tmp_path / name / "m"
        (home / "1").mkdir(parents=True)
        (home / "config.pbtxt").write_text('backend: "identity"')
    return tmp_path


def remembered(store: SnapshotStore, root: Path) -> set[str]:
    """Those that are known without their files."""
    shutil.rmtree(root)
    return {name for name in "abc" if isinstance(store.sealed(name), ModelFolder)}


def test_those_not_asked_for_the_longest_are_forgotten_first(root: Path) -> None:
    store = SnapshotStore(root, most=2)
    for name in "abac":
        store.sealed(name)
    assert remembered(store, root) == {"a", "c"}


def test_what_was_not_asked_for_since_is_forgotten(root: Path) -> None:
    store = SnapshotStore(root)
    for name in "abc":
        store.sealed(name)
    store.forget_others()
    for name in "bc":
        store.sealed(name)
    store.forget_others()
    assert remembered(store, root) == {"b", "c"}


def test_what_is_missing_is_looked_for_again(root: Path) -> None:
    store = SnapshotStore(root)
    (root / "a").rename(root / "elsewhere")
    assert "is not in the store" in str(store.sealed("a"))
    (root / "elsewhere").rename(root / "a")
    assert isinstance(store.sealed("a"), ModelFolder)

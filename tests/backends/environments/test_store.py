"""Environments on the disk: built once, kept while used, evicted by age."""

import os
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from backends.environments.store import ENVIRONMENT, EnvironmentLease, EnvironmentStore

SIZE = 1 << 20
UNTIL = float("inf")


def writing(size: int = SIZE) -> Callable[[Path], None]:
    def build(place: Path) -> None:
        (place / ENVIRONMENT).mkdir()
        (place / ENVIRONMENT / "file").write_bytes(os.urandom(size))

    return build


def obtain(store: EnvironmentStore, digest: str) -> EnvironmentLease:
    return store.obtain(digest, digest, writing(), UNTIL)


def digests(store: EnvironmentStore) -> list[str]:
    return [one.digest for one in store.kept()]


def test_loads_that_need_the_same_environment_at_once_build_it_once(tmp_path: Path) -> None:
    store = EnvironmentStore(tmp_path, 100 * SIZE)
    built = []
    go = threading.Barrier(4)

    def build(place: Path) -> None:
        built.append(place)
        writing()(place)

    def load(_: int) -> EnvironmentLease:
        go.wait(30)
        return EnvironmentStore(tmp_path, 100 * SIZE).obtain("a", "a", build, UNTIL)

    with ThreadPoolExecutor(4) as pool:
        leases = list(pool.map(load, range(4)))
    assert len(built) == 1
    assert [one.in_use for one in store.kept()] == [True]
    for lease in leases:
        lease.close()
    assert [one.in_use for one in store.kept()] == [False]


def test_a_build_that_fails_or_is_broken_off_leaves_nothing_half_used(tmp_path: Path) -> None:
    store = EnvironmentStore(tmp_path, 100 * SIZE)

    def fail(place: Path) -> None:
        writing()(place)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        store.obtain("a", "a", fail, UNTIL)
    assert not (tmp_path / "a").exists()
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "half").write_text("of a server that was killed")
    store.sweep()
    assert not (tmp_path / "b").exists()
    obtain(store, "b").close()
    assert digests(EnvironmentStore(tmp_path, 100 * SIZE)) == ["b"]


def test_what_nobody_uses_is_evicted_the_longest_unused_first(tmp_path: Path) -> None:
    store = EnvironmentStore(tmp_path, int(2.5 * SIZE))
    held = obtain(store, "held")
    os.utime(tmp_path / "held", (1, 1))
    obtain(store, "older").close()
    os.utime(tmp_path / "older", (2, 2))
    obtain(store, "newer").close()
    assert digests(store) == ["newer", "held"]
    assert not store.remove("held")
    more = held.again()
    held.close()
    assert not store.remove("held")
    more.close()
    assert store.remove("held")
    assert digests(store) == ["newer"]


def test_who_waits_for_another_build_waits_until_its_deadline(tmp_path: Path) -> None:
    store = EnvironmentStore(tmp_path, 100 * SIZE)

    def build(_place: Path) -> None:
        with pytest.raises(TimeoutError):
            store.obtain("a", "a", writing(), time.monotonic())
        raise ValueError("done")

    with pytest.raises(ValueError, match="done"):
        store.obtain("a", "a", build, UNTIL)


def test_versions_are_kept_whole_when_an_environment_goes_and_forgotten_with_it(
    tmp_path: Path,
) -> None:
    store = EnvironmentStore(tmp_path, 100 * SIZE)
    obtain(store, "a").close()
    (tmp_path / "a.new").write_text("of a process that was killed")
    store.keep_versions("a", b"six==1\n")
    assert store.remove("a")
    assert store.kept_versions("a") == b"six==1\n"
    assert store.digests() == ["a"]
    assert store.forget("a")
    assert (store.digests(), store.kept_versions("a")) == ([], b"")
    store.versions_file("a").write_bytes(b"")
    assert store.kept_versions("a") == b""
    store.versions_file("a").write_bytes(b"six==1 --hash=sha2")
    assert store.kept_versions("a") == b""


def test_who_opened_a_lock_before_an_environment_is_forgotten_still_locks_the_same(
    tmp_path: Path,
) -> None:
    store = EnvironmentStore(tmp_path, 100 * SIZE)
    lease = obtain(store, "a")
    lock = (tmp_path / "a.lock").stat().st_ino
    assert not store.forget("a")
    lease.close()
    assert store.forget("a")
    obtain(store, "a").close()
    assert (tmp_path / "a.lock").stat().st_ino == lock
